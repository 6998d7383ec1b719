/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tag on a descriptor: an open file description lock on bytes [id, id + units). No process waits for the lock; it
 * only says which memory the descriptor stands for. The tag goes wherever the descriptor goes, ends with the last copy,
 * and the kernel shows it: to the owner of the descriptor in /proc/self/fdinfo, to everybody in /proc/locks. Both files
 * are hostile input: any process may lock anything.
 */
#ifndef SLUICE_SHM_TAG_H
#define SLUICE_SHM_TAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Turns a number into a valid id: odd, and small enough that no tag exceeds the largest offset. */
static inline uint64_t sl_tag_id(uint64_t any)
{
    return (any & ((1ULL << 62) - 1)) | 1;
}

/* These keep errno. */
bool sl_tag_put(int fd, uint64_t id, uint64_t units);
bool sl_tag_read(int fd, uint64_t *ret_id, uint64_t *ret_units);

/* Is a descriptor with this tag open in any process, or on its way to one? */
bool sl_tag_exists(uint64_t id);

/* The ids of all tags, at most `room`. False: there may be more. Limited work. */
bool sl_tag_list(uint64_t *ids, size_t room, size_t *ret_count);

#endif
