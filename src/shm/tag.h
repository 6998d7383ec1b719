/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tag on a descriptor: an open file description lock on bytes [id, id + units). Nobody waits for it; it
 * only says which memory the descriptor stands for. It goes wherever the descriptor goes, ends with
 * the last copy, and the kernel shows it: to who has the descriptor in /proc/self/fdinfo, to
 * everybody in /proc/locks. What is read there is hostile input: anybody may lock anything.
 */
#ifndef SLUICE_SHM_TAG_H
#define SLUICE_SHM_TAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number that can be an id: odd, and small enough that no tag runs into the end of offsets. */
static inline uint64_t sl_tag_id(uint64_t any)
{
    return (any & ((1ULL << 62) - 1)) | 1;
}

/* These keep errno. */
bool sl_tag_put(int fd, uint64_t id, uint64_t units);
bool sl_tag_read(int fd, uint64_t *ret_id, uint64_t *ret_units);

/* A descriptor with this tag is open somewhere, or on its way to some process. */
bool sl_tag_exists(uint64_t id);

/* Ids of the tags there are, at most `room`. False: there may be more. Bounded work. */
bool sl_tag_list(uint64_t *ids, size_t room, size_t *ret_count);

#endif
