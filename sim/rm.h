/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libcuda says to the kernel driver about its channel groups, as far as a preloaded `ioctl` can
 * see it and the simulation answers: the numbers are the real driver's (580). A context's channels are
 * in groups, one for each engine; the hosts run the groups of an engine in turn, a slice each.
 */
#ifndef SLUICE_SIM_RM_H
#define SLUICE_SIM_RM_H

#include <stdint.h>
#include <sys/ioctl.h>

#define SIM_RM_TYPE    'F'
#define SIM_RM_FREE    _IOWR(SIM_RM_TYPE, 0x29, struct sim_rm_free)
#define SIM_RM_CONTROL _IOWR(SIM_RM_TYPE, 0x2A, struct sim_rm_control)
#define SIM_RM_ALLOC   _IOWR(SIM_RM_TYPE, 0x2B, struct sim_rm_alloc)
#define SIM_RM_ALLOC32 _IOWR(SIM_RM_TYPE, 0x2B, struct sim_rm_alloc32)

enum {
    SIM_RM_CLASS_ROOT = 0x41,
    SIM_RM_CLASS_DEVICE = 0x80,
    SIM_RM_CLASS_SUBDEVICE = 0x2080,
    SIM_RM_CLASS_GROUP = 0xA06C,
    SIM_RM_CLASS_CHANNEL = 0xC86F,
};

enum {
    SIM_RM_ENGINE_COMPUTE = 1,
    SIM_RM_ENGINE_COPY0 = 9,
};

#define SIM_RM_GROUP_SCHEDULE  0xA06C0101U
#define SIM_RM_GROUP_SET_SLICE 0xA06C0103U
#define SIM_RM_GROUP_GET_SLICE 0xA06C0104U
#define SIM_RM_GROUP_PREEMPT   0xA06C0105U
#define SIM_RM_DISABLE         0x2080110BU

enum {
    SIM_RM_OK = 0,
    SIM_RM_IN_USE = 0x19, /* a handle that is taken */
    SIM_RM_NO_RIGHTS = 0x1B,
    SIM_RM_INVALID = 0x1F,
    SIM_RM_NO_MEMORY = 0x51,
    SIM_RM_NOT_SUPPORTED = 0x56,
    SIM_RM_NOT_FOUND = 0x57,
};

struct sim_rm_alloc {
    uint32_t root, parent, object, class;
    uint64_t params, rights;
    uint32_t params_size, flags, status, pad;
};

struct sim_rm_alloc32 {
    uint32_t root, parent, object, class;
    uint64_t params;
    uint32_t params_size, status;
};

struct sim_rm_free {
    uint32_t root, parent, object, status;
};

struct sim_rm_control {
    uint32_t client, object, cmd, flags;
    uint64_t params;
    uint32_t size, status;
};

struct sim_rm_group_params {
    uint32_t error, ecc_error, address_space;
    uint32_t engine;
    uint32_t pad;
};

struct sim_rm_slice {
    uint64_t us;
};

struct sim_rm_disable {
    uint8_t disable;
    uint32_t count;
    uint8_t only_scheduling, rewind;
    uint64_t event;
    uint32_t client[64], channel[64];
};

_Static_assert(sizeof(struct sim_rm_alloc) == 48, "the 48-byte form");
_Static_assert(sizeof(struct sim_rm_alloc32) == 32, "the 32-byte form");
_Static_assert(sizeof(struct sim_rm_free) == 16, "as the driver's");
_Static_assert(sizeof(struct sim_rm_control) == 32, "as the driver's");
_Static_assert(sizeof(struct sim_rm_disable) == 536, "as the driver's");

#endif
