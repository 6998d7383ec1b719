/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SLUICE_SIM_FAULT for NVML calls: entries separated by commas,
 *   nvmlInit_v2:1=9   the first call answers 9
 *   nvmlInit_v2:0=9   every call does
 *   nvmlInit_v2:0=hang@FILE   every call hangs while FILE is there, then goes on
 *   nvmlInit_v2:0=20ms   every call takes 20 ms longer, as a driver that is busy does
 *   abi=11040         functions newer than the driver of CUDA 11.4 answer FUNCTION_NOT_FOUND
 * Entries about other things belong to the CUDA half and are passed over.
 */
#include "sim/nvml_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

#define MAX_FAULTS 32

struct fault {
    char name[64];
    unsigned long nth; /* 0: every call */
    nvmlReturn_t result;
    unsigned long slow_ms; /* it takes so much longer, and answers as always; 0: it does not */
    char *while_there;     /* it hangs while this file is there; NULL: it answers `result` */
    atomic_ulong calls;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct fault faults[MAX_FAULTS];
static size_t fault_count;
static uint32_t abi_branch;

/* The branch a CUDA version came with. */
static uint32_t branch_of(unsigned long abi)
{
    static const struct {
        unsigned long cuda;
        uint32_t branch;
    } versions[] = {{13000, 580}, {12080, 570}, {12040, 550}, {12020, 535}, {12000, 525},
                    {11060, 510}, {11040, 470}, {11000, 450}, {10000, 410}};
    if (abi < 1000)
        return (uint32_t)abi;
    for (size_t i = 0; i < SL_ARRAY_LEN(versions); i++)
        if (abi >= versions[i].cuda)
            return versions[i].branch;
    return 396;
}

static void parse_entry(char *entry)
{
    char *value = strchr(entry, '=');
    if (!value)
        return;
    *value++ = '\0';
    unsigned long number = strtoul(value, NULL, 10);
    if (strcmp(entry, "abi") == 0) {
        abi_branch = branch_of(number);
        return;
    }
    if (strncmp(entry, "nvml", 4) != 0 || fault_count == MAX_FAULTS)
        return;
    struct fault *f = &faults[fault_count];
    char *nth = strchr(entry, ':');
    if (!nth)
        return;
    *nth++ = '\0';
    f->nth = strtoul(nth, NULL, 10);
    if (strlen(entry) >= sizeof(f->name))
        return;
    memcpy(f->name, entry, strlen(entry) + 1);
    size_t digits = strspn(value, "0123456789");
    if (digits > 0 && strcmp(value + digits, "ms") == 0)
        f->slow_ms = number;
    else
        f->result = (nvmlReturn_t)number;
    if (strncmp(value, "hang@", 5) == 0)
        f->while_there = strdup(value + 5); /* the process's, as the table is */
    fault_count++;
}

static void parse(void)
{
    const char *text = getenv("SLUICE_SIM_FAULT");
    SL_CLEANUP(free) char *copy = text ? strdup(text) : NULL;
    char *rest = copy, *entry;
    while (rest && (entry = strsep(&rest, ",")) != NULL)
        parse_entry(entry);
}

static nvmlReturn_t hang(const char *path)
{
    const struct timespec a_while = {.tv_nsec = 10000000};
    while (access(path, F_OK) == 0)
        (void)nanosleep(&a_while, NULL);
    return NVML_SUCCESS;
}

static nvmlReturn_t take_time(unsigned long ms)
{
    const struct timespec a_while = {.tv_sec = (time_t)(ms / 1000),
                                     .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&a_while, NULL);
    return NVML_SUCCESS;
}

nvmlReturn_t nv_fault(const char *function)
{
    (void)pthread_once(&once, parse);
    for (size_t i = 0; i < fault_count; i++) {
        struct fault *f = &faults[i];
        if (strcmp(f->name, function) != 0)
            continue;
        unsigned long n = atomic_fetch_add(&f->calls, 1) + 1;
        if (f->nth != 0 && n != f->nth)
            continue;
        if (f->slow_ms)
            return take_time(f->slow_ms);
        return f->while_there ? hang(f->while_there) : f->result;
    }
    return NVML_SUCCESS;
}

uint32_t nv_abi_branch(void)
{
    (void)pthread_once(&once, parse);
    return abi_branch;
}
