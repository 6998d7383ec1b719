/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of structs that have their own `next`. */
#ifndef SLUICE_BASE_LIST_H
#define SLUICE_BASE_LIST_H

/* Removes an item from the list that begins at *head. The item must be in the list. */
#define sl_list_drop(head, item)                                                                   \
    do {                                                                                           \
        __typeof__(head) at_ = (head);                                                             \
        while (*at_ != (item))                                                                     \
            at_ = &(*at_)->next;                                                                   \
        *at_ = (item)->next;                                                                       \
    } while (0)

#endif
