/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes and pseudo-random numbers, the same on every machine. Not safe against an attacker. */
#ifndef SLUICE_BASE_HASH_H
#define SLUICE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* FNV-1a, 64 bits. Goes on from `hash`; the first call begins with SL_HASH_START. */
#define SL_HASH_START 0xcbf29ce484222325ULL
static inline uint64_t sl_hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
    return hash;
}

static inline uint64_t sl_hash_text(const char *text)
{
    return sl_hash_bytes(SL_HASH_START, text, strlen(text));
}

/* splitmix64: the next number of the series that began with the seed in *state. */
static inline uint64_t sl_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

#endif
