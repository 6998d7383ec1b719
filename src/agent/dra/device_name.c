/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/device_name.h"

#include "agent/dra/errors.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VM_PREFIX "vm-"

const char *sl_dra_driver(const struct sl_dra_names *names)
{
    return names->nvidia ? SL_NVIDIA_DRIVER : SL_DRA_DRIVER;
}

int sl_dra_consumable_parse(const char *text, struct sl_dra_names *names, struct sl_err *err)
{
    static const char *const words[] = {[SL_CONSUMABLE_DISABLED] = "disabled",
                                        [SL_CONSUMABLE_MEMORY] = "memory",
                                        [SL_CONSUMABLE_UNLIMITED] = "unlimited"};
    char *end;
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i]) == 0) {
            names->consumable = (enum sl_consumable)i;
            return 0;
        }
    unsigned long n = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 10) : 0;
    if (n < 1 || n > 100 || *end)
        return sl_err_set(err, -EINVAL, SL_E_CONSUMABLE, text);
    names->consumable = SL_CONSUMABLE_COUNT;
    names->count = (unsigned)n;
    return 0;
}

void sl_device_profile_word(const char *profile, char *buf, size_t size)
{
    size_t n = 0;
    for (; *profile && n + 1 < size; profile++) {
        char c = (char)tolower((unsigned char)*profile);
        if (isalnum((unsigned char)c))
            buf[n++] = c;
        else if (c == '+' || c == '-')
            buf[n++] = '-';
    }
    buf[n] = '\0';
}

void sl_device_name_format(const struct sl_device_name *name, char buf[SL_DEVICE_NAME_SIZE])
{
    switch (name->kind) {
    case SL_DEVICE_WHOLE:
        (void)snprintf(buf, SL_DEVICE_NAME_SIZE, "gpu-%u", name->gpu);
        break;
    case SL_DEVICE_SHARE:
        (void)snprintf(buf, SL_DEVICE_NAME_SIZE, "gpu-%u-share", name->gpu);
        break;
    case SL_DEVICE_MIG:
        (void)snprintf(buf, SL_DEVICE_NAME_SIZE, "gpu-%u-mig-%s-%u", name->gpu, name->profile,
                       name->start);
        break;
    case SL_DEVICE_VM: /* sl_device_vm_name */
        buf[0] = '\0';
    }
}

void sl_device_vm_name(const char *id, char buf[SL_DEVICE_NAME_SIZE])
{
    (void)snprintf(buf, SL_DEVICE_NAME_SIZE, VM_PREFIX "%s", id);
    for (char *c = buf; *c; c++)
        if (*c == ':' || *c == '.')
            *c = '-';
}

/* The letters that ids have; which device it is, only the offer knows. */
static bool is_vm_name(const char *name)
{
    size_t prefix = strlen(VM_PREFIX), n = strlen(name);
    return strncmp(name, VM_PREFIX, prefix) == 0 && n > prefix && n < SL_DEVICE_NAME_SIZE &&
           strspn(name + prefix, "0123456789abcdef-") == n - prefix && name[n - 1] != '-';
}

/* Digits without a sign or leading zeros: every device has one name. */
static const char *number(const char *s, uint32_t *ret)
{
    char *end;
    if (!isdigit((unsigned char)*s) || (*s == '0' && isdigit((unsigned char)s[1])))
        return NULL;
    errno = 0;
    unsigned long v = strtoul(s, &end, 10);
    if (errno || v > UINT16_MAX)
        return NULL;
    *ret = (uint32_t)v;
    return end;
}

int sl_device_name_parse(const char *name, struct sl_device_name *ret, struct sl_err *err)
{
    struct sl_device_name d = {.kind = SL_DEVICE_WHOLE};
    if (is_vm_name(name)) {
        *ret = (struct sl_device_name){.kind = SL_DEVICE_VM};
        return 0;
    }
    const char *rest = strncmp(name, "gpu-", 4) == 0 ? number(name + 4, &d.gpu) : NULL;
    bool good = rest && !*rest;
    if (rest && strcmp(rest, "-share") == 0) {
        d.kind = SL_DEVICE_SHARE;
        good = true;
    } else if (rest && strncmp(rest, "-mig-", 5) == 0) {
        const char *word = rest + 5, *dash = strrchr(word, '-');
        const char *end = dash ? number(dash + 1, &d.start) : NULL;
        d.kind = SL_DEVICE_MIG;
        good = end && !*end && dash > word && (size_t)(dash - word) < sizeof(d.profile);
        if (good)
            memcpy(d.profile, word, (size_t)(dash - word));
    }
    if (!good)
        return sl_err_set(err, -EINVAL, SL_E_DEVICE_FOREIGN, name);
    *ret = d;
    return 0;
}
