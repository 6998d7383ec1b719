/* SPDX-License-Identifier: Apache-2.0 */
/* What a driver's tree in a test has for libraries. */
int driver_library_answer(void);

__attribute__((visibility("default"))) int driver_library_answer(void)
{
    return 42;
}
