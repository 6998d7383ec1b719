/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/vm/text.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_LENGTH 63 /* of a resource, after the domain */
#define VENDOR          "10de"

static bool is_lower_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool sl_pci_address_valid(const char *text)
{
    size_t domain = 0;
    while (is_lower_hex(text[domain]))
        domain++;
    if (domain < 4 || domain > 8 || text[domain] != ':')
        return false;
    const char *rest = text + domain + 1;
    static const char form[] = "hh:hh.f";
    for (size_t i = 0; i < sizeof(form) - 1; i++) {
        bool fits = form[i] == 'h'   ? is_lower_hex(rest[i])
                    : form[i] == 'f' ? rest[i] >= '0' && rest[i] <= '7'
                                     : rest[i] == form[i];
        if (!fits)
            return false;
    }
    return rest[sizeof(form) - 1] == '\0';
}

bool sl_pci_address_from_nvml(const char *text, char ret[SL_PCI_ADDRESS_SIZE])
{
    size_t n = strlen(text);
    /* NVML writes eight digits of the domain, sysfs at least four. */
    for (; n > sizeof("0000:00:00.0") - 1 && *text == '0'; n--)
        text++;
    if (n >= SL_PCI_ADDRESS_SIZE)
        return false;
    for (size_t i = 0; i <= n; i++)
        ret[i] = (char)tolower((unsigned char)text[i]);
    return sl_pci_address_valid(ret);
}

/* At the end of a value: a line end, or nothing. */
static bool ends(const char *text)
{
    return text[0] == '\0' || (text[0] == '\n' && text[1] == '\0');
}

bool sl_sysfs_hex(const char *text, uint32_t max, uint32_t *ret)
{
    uint64_t value = 0;
    if (text[0] != '0' || text[1] != 'x' || !is_lower_hex(text[2]))
        return false;
    for (text += 2; is_lower_hex(*text); text++) {
        value = value * 16 + (uint64_t)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
        if (value > max)
            return false;
    }
    if (!ends(text))
        return false;
    *ret = (uint32_t)value;
    return true;
}

bool sl_sysfs_number(const char *text, int *ret)
{
    int64_t value = 0;
    if (strncmp(text, "-1", 2) == 0 && ends(text + 2)) {
        *ret = -1;
        return true;
    }
    if (!isdigit((unsigned char)*text))
        return false;
    for (; isdigit((unsigned char)*text); text++) {
        value = value * 10 + (*text - '0');
        if (value > INT32_MAX)
            return false;
    }
    if (!ends(text))
        return false;
    *ret = (int)value;
    return true;
}

bool sl_mdev_uuid_valid(const char *text)
{
    static const char form[] = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";
    for (size_t i = 0; i < sizeof(form) - 1; i++)
        if (form[i] == 'h' ? !is_lower_hex(text[i]) : text[i] != form[i])
            return false;
    return text[sizeof(form) - 1] == '\0';
}

/* --- vGPU types ---------------------------------------------------------------------------------- */

/* Printable ASCII without spaces around it. */
static bool copy_name(const char *from, size_t n, char *ret, size_t size)
{
    while (n > 0 && from[0] == ' ') {
        from++;
        n--;
    }
    while (n > 0 && (from[n - 1] == ' ' || from[n - 1] == '\n' || from[n - 1] == '\r'))
        n--;
    if (n == 0 || n >= size)
        return false;
    for (size_t i = 0; i < n; i++)
        if (from[i] < ' ' || from[i] > '~')
            return false;
    memcpy(ret, from, n);
    ret[n] = '\0';
    return true;
}

bool sl_vgpu_name(const char *text, char ret[SL_VGPU_NAME_SIZE])
{
    return copy_name(text, strlen(text), ret, SL_VGPU_NAME_SIZE);
}

const char *sl_vgpu_type_line(const char *text, unsigned *ret_id, char ret_name[SL_VGPU_NAME_SIZE])
{
    *ret_id = 0;
    if (!*text)
        return NULL;
    size_t n = strcspn(text, "\n");
    const char *next = text + n + (text[n] == '\n'), *end = text + n;
    unsigned long id = 0;
    while (*text == ' ')
        text++;
    for (; isdigit((unsigned char)*text) && id <= UINT_MAX / 16; text++)
        id = id * 10 + (unsigned long)(*text - '0');
    while (*text == ' ')
        text++;
    if (id > 0 && *text == ':' &&
        copy_name(text + 1, (size_t)(end - text - 1), ret_name, SL_VGPU_NAME_SIZE))
        *ret_id = (unsigned)id;
    return next;
}

/* --- pci.ids ------------------------------------------------------------------------------------- */

/* Vendors begin at the first column, their devices after one tab, subsystems after two. */
bool sl_pci_ids_find(const char *text, size_t size, uint32_t device, char *ret, size_t ret_size)
{
    const char *end = text + size;
    char id[8];
    bool ours = false;
    (void)snprintf(id, sizeof(id), "\t%04x", device & 0xffff);
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((stop ? stop : end) - line);
        if (n > 0 && line[0] != '\t' && line[0] != '#') {
            if (ours)
                return false;
            ours = n > 4 && memcmp(line, VENDOR, 4) == 0 && line[4] == ' ';
        } else if (ours && n > 5 && memcmp(line, id, 5) == 0 && line[5] == ' ') {
            return copy_name(line + 5, n - 5, ret, ret_size);
        }
        line += n + 1;
    }
    return false;
}

/* --- names --------------------------------------------------------------------------------------- */

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Kubernetes wants a letter or a digit at both ends, and no more than 63 characters. */
static bool trim(char *name)
{
    size_t n = strlen(name), from = 0;
    if (n > NAME_MAX_LENGTH)
        n = NAME_MAX_LENGTH;
    while (n > 0 && !is_alnum(name[n - 1]))
        n--;
    while (from < n && !is_alnum(name[from]))
        from++;
    memmove(name, name + from, n - from);
    name[n - from] = '\0';
    return n > from;
}

/* Blanks, slashes and dots become one '_'; brackets and the like vanish. */
bool sl_vm_card_name(const char *pci_name, char ret[SL_RESOURCE_NAME_SIZE])
{
    size_t n = 0;
    bool blank = false;
    for (; *pci_name && n + 2 < SL_RESOURCE_NAME_SIZE; pci_name++) {
        char c = *pci_name;
        if (c == ' ' || c == '\t') {
            blank = true;
            continue;
        }
        if (blank)
            ret[n++] = '_';
        blank = false;
        if (c == '/' || c == '.')
            ret[n++] = '_';
        else if (is_alnum(c) || c == '_')
            ret[n++] = (char)toupper((unsigned char)c);
    }
    ret[n] = '\0';
    return trim(ret);
}

/* Only blanks change: users write the type as NVIDIA does. */
bool sl_vm_vgpu_name(const char *type_name, char ret[SL_RESOURCE_NAME_SIZE])
{
    size_t n = 0;
    bool blank = false;
    for (; *type_name && n + 1 < SL_RESOURCE_NAME_SIZE; type_name++) {
        char c = *type_name;
        bool again = blank;
        blank = c == ' ' || c == '\t';
        if (blank && !again)
            ret[n++] = '_';
        else if (is_alnum(c) || c == '_' || c == '-' || c == '.')
            ret[n++] = c;
    }
    ret[n] = '\0';
    return trim(ret);
}

void sl_vm_variable(const char *prefix, const char *resource, char *ret, size_t size)
{
    int n = snprintf(ret, size, "%s_%s", prefix, resource);
    if (n < 0 || size == 0)
        return;
    for (size_t i = strlen(prefix) < size ? strlen(prefix) : size; i < size && ret[i]; i++)
        ret[i] = ret[i] == '/' || ret[i] == '.' ? '_' : (char)toupper((unsigned char)ret[i]);
}
