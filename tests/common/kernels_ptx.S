/* SPDX-License-Identifier: Apache-2.0 */
    .section .rodata
    .globl sluice_kernels_ptx
    .type sluice_kernels_ptx, @object
sluice_kernels_ptx:
    .incbin "kernels.ptx"
    .byte 0
    .size sluice_kernels_ptx, . - sluice_kernels_ptx
    .section .note.GNU-stack,"",@progbits
