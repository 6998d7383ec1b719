/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo's kernel, as PTX, so that no CUDA compiler is needed: a fixed amount of arithmetic, about
 * one nanosecond a step on a current card. The simulated driver knows it by its name and takes
 * exactly that long.
 */
#ifndef SLUICE_DEMO_KERNELS_H
#define SLUICE_DEMO_KERNELS_H

#define KERNEL_NAME  "sluice_fma"
#define KERNEL_GRID  264
#define KERNEL_BLOCK 256

static const char kernel_ptx[] =
    ".version 6.4\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry sluice_fma(.param .u64 steps, .param .u64 sink)\n"
    "{\n"
    "    .reg .pred %p<3>;\n"
    "    .reg .b64 %rd<3>;\n"
    "    .reg .f32 %f<3>;\n"
    "    ld.param.u64 %rd1, [steps];\n"
    "    ld.param.u64 %rd2, [sink];\n"
    "    cvta.to.global.u64 %rd2, %rd2;\n"
    "    mov.f32 %f1, 0f3F000000;\n"
    "    mov.f32 %f2, 0f3F000000;\n"
    "again:\n"
    "    fma.rn.f32 %f1, %f1, %f2, %f2;\n"
    "    fma.rn.f32 %f1, %f1, %f2, %f2;\n"
    "    sub.s64 %rd1, %rd1, 4;\n"
    "    setp.gt.s64 %p1, %rd1, 0;\n"
    "    @%p1 bra again;\n"
    /* Never true, but the compiler cannot know: the arithmetic must stay. */
    "    setp.gt.f32 %p2, %f1, 0f40000000;\n"
    "    @%p2 st.global.f32 [%rd2], %f1;\n"
    "    ret;\n"
    "}\n";

#endif
