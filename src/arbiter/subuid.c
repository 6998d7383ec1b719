/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/subuid.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/quantity.h"

#define SUBUID_FILE "/etc/subuid"
#define PASSWD_FILE "/etc/passwd"
#define FILE_MAX    (1UL << 20)

static bool is_word(const char *at, size_t n, const char *word)
{
    return word && strlen(word) == n && memcmp(at, word, n) == 0;
}

bool sl_subuid_has(const char *text, const char *name, uid_t owner, uid_t uid)
{
    char number[16];
    (void)snprintf(number, sizeof(number), "%u", (unsigned)owner);
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = strcspn(p, ":\n");
        uint64_t first = 0, count = 0;
        bool his = p[n] == ':' && (is_word(p, n, number) || is_word(p, n, name));
        const char *rest = his ? sl_number_read(p + n + 1, UINT32_MAX, &first) : NULL;
        if (rest && *rest == ':')
            rest = sl_number_read(rest + 1, UINT32_MAX, &count);
        else
            rest = NULL;
        if (rest && (*rest == '\n' || *rest == '\0') && uid >= first && uid - first < count)
            return true;
    }
    return false;
}

/* getpwuid() could wait for a server; a user with subordinate uids is usually one of this machine. */
static void name_of(uid_t uid, char *buf, size_t size)
{
    struct passwd entry, *found = NULL;
    char space[4096];
    SL_CLEANUP(fclose) FILE *f = fopen(PASSWD_FILE, "re");
    buf[0] = '\0';
    while (f && fgetpwent_r(f, &entry, space, sizeof(space), &found) == 0)
        if (entry.pw_uid == uid) {
            (void)snprintf(buf, size, "%s", entry.pw_name);
            return;
        }
}

bool sl_subuid_of(uid_t owner, uid_t uid)
{
    SL_CLEANUP(free) char *text = NULL;
    char name[64];
    if (sl_fs_read(AT_FDCWD, SUBUID_FILE, FILE_MAX, &text, NULL, NULL) < 0)
        return false;
    name_of(owner, name, sizeof(name));
    return sl_subuid_has(text, name[0] ? name : NULL, owner, uid);
}
