/* SPDX-License-Identifier: Apache-2.0 */
/* The text of kernels.ptx, NUL-terminated: what cuModuleLoadData takes. Link sl_test_kernels. */
#ifndef SLUICE_TESTS_KERNELS_PTX_H
#define SLUICE_TESTS_KERNELS_PTX_H

extern const char sluice_kernels_ptx[];

#endif
