/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym and dlvsym, exported. The C library's dlsym looks at its return address to know whose
 * RTLD_NEXT and RTLD_DEFAULT are meant. So what is not ours must reach it as if we were not here:
 * same arguments, same return address, a jump instead of a call.
 */
#if defined(__x86_64__)
    .text
    .macro LOOKUP name, decide, caller_register
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    movq 24(%rsp), \caller_register
    call \decide
    movq %rdx, %rcx
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rcx, %rcx
    jz 1f
    jmpq *%rax
1:  ret
    .cfi_endproc
    .size \name, . - \name
    .endm

    LOOKUP dlsym, sl_resolve_dlsym, %rdx
    LOOKUP dlvsym, sl_resolve_dlvsym, %rcx

#elif defined(__aarch64__)
    .text
    .macro LOOKUP name, decide, caller_register
    .globl \name
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint #34 /* bti c */
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    mov \caller_register, x30
    bl \decide
    mov x16, x0
    mov x17, x1
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_def_cfa_offset 0
    cbz x17, 1f
    br x16
1:  mov x0, x16
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm

    LOOKUP dlsym, sl_resolve_dlsym, x2
    LOOKUP dlvsym, sl_resolve_dlvsym, x3
#else
#error "dlsym needs its few instructions for this processor"
#endif
    .section .note.GNU-stack, "", %progbits
