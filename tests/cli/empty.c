/* SPDX-License-Identifier: Apache-2.0 */
/* A library with nothing in it: what a driver package cut in half leaves. */
int sl_empty_library(void);
int sl_empty_library(void)
{
    return 0;
}
