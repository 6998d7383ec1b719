/* SPDX-License-Identifier: Apache-2.0 */
/* From a member to the struct around it: a callback gets the timer and needs the timer's owner. */
#ifndef SLUICE_BASE_CONTAINER_H
#define SLUICE_BASE_CONTAINER_H

#include <stddef.h>

#define sl_container_of(ptr, type, member)                                                         \
    ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

#endif
