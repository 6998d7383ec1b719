/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/history.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* The file may come from a later build, but not from anything else. */
#define FIRST_WORD "t1"

/* One word of the line: a text or a number, in the entry at `at`. */
struct field {
    const char *key;
    enum { TEXT, HEX, U32, U64 } kind;
    size_t at, size;
};

#define FIELD(key, kind, member)                                                                   \
    {key, kind, offsetof(struct sl_history_entry, member),                                         \
     sizeof(((struct sl_history_entry *)NULL)->member)}

static const struct field fields[] = {
    FIELD("id", HEX, id),
    FIELD("name", TEXT, name),
    FIELD("command", TEXT, command),
    FIELD("uid", U32, uid),
    FIELD("start", U64, started_ms),
    FIELD("end", U64, ended_ms),
    FIELD("waited", U64, waited_ms),
    FIELD("request", U32, cores_request_permille),
    FIELD("limit", U32, cores_limit_permille),
    FIELD("work", U64, work_ms),
    FIELD("measured", U64, measured_ms),
    FIELD("used", U64, used_ms),
};

static const char *const end_words[] = {[SL_HISTORY_UNKNOWN] = "unknown",
                                        [SL_HISTORY_EXIT] = "exit",
                                        [SL_HISTORY_SIGNAL] = "signal",
                                        [SL_HISTORY_REMOVED] = "removed"};
#define END_WORDS (sizeof(end_words) / sizeof(end_words[0]))

/* --- writing --- */

struct out {
    char *buf;
    size_t n;
};

/* All of it fits: the sizes of the fields are fixed. What would not fit is left out, and the checksum tells. */
static void put(struct out *o, const char *text)
{
    size_t n = strlen(text), room = SL_HISTORY_LINE_MAX - 1 - o->n;
    n = n < room ? n : room;
    memcpy(o->buf + o->n, text, n);
    o->n += n;
}

static void put_number(struct out *o, uint64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    put(o, text);
}

static void put_hex(struct out *o, uint64_t value, int digits)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%0*" PRIx64, digits, value);
    put(o, text);
}

/* A text is one word of printable characters; ':' and ',' divide the list of GPUs. */
static bool plain(char c)
{
    return c > ' ' && c <= '~' && c != '=' && c != ':' && c != ',';
}

static void put_text(struct out *o, const char *text, size_t size)
{
    char word[SL_HISTORY_NAME_MAX];
    size_t n = 0;
    for (; n < size - 1 && n < sizeof(word) - 1 && text[n]; n++)
        word[n] = (char)(plain(text[n]) ? text[n] : '?');
    word[n] = '\0';
    put(o, word);
}

static void put_field(struct out *o, const struct field *f, const struct sl_history_entry *e)
{
    const char *at = (const char *)e + f->at;
    uint64_t u64 = 0;
    uint32_t u32 = 0;
    put(o, " ");
    put(o, f->key);
    put(o, "=");
    if (f->kind == TEXT) {
        put_text(o, at, f->size);
        return;
    }
    memcpy(f->size == sizeof(u64) ? (void *)&u64 : (void *)&u32, at, f->size);
    if (f->kind == HEX)
        put_hex(o, u64, 16);
    else
        put_number(o, f->size == sizeof(u64) ? u64 : u32);
}

static void put_gpus(struct out *o, const struct sl_history_entry *e)
{
    for (uint32_t i = 0; i < e->gpu_count && i < SL_HISTORY_GPUS; i++) {
        put(o, i ? "," : " gpus=");
        put_number(o, e->gpu[i].index);
        put(o, ":");
        put_text(o, e->gpu[i].uuid, sizeof(e->gpu[i].uuid));
        put(o, ":");
        if (e->gpu[i].asked_bytes == SL_HISTORY_NO_LIMIT)
            put(o, "-");
        else
            put_number(o, e->gpu[i].asked_bytes);
        put(o, ":");
        put_number(o, e->gpu[i].peak_bytes);
    }
}

static uint32_t checksum(const char *text, size_t size)
{
    uint64_t h = sl_hash_bytes(SL_HASH_START, text, size);
    return (uint32_t)(h ^ h >> 32);
}

size_t sl_history_format(const struct sl_history_entry *e, char buf[SL_HISTORY_LINE_MAX])
{
    struct out o = {.buf = buf};
    put(&o, FIRST_WORD);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        put_field(&o, &fields[i], e);
    put(&o, " ended=");
    put(&o, end_words[e->end < END_WORDS ? e->end : SL_HISTORY_UNKNOWN]);
    put(&o, ":");
    put_number(&o, e->code);
    put_gpus(&o, e);
    uint32_t sum = checksum(buf, o.n);
    put(&o, " sum=");
    put_hex(&o, sum, 8);
    buf[o.n] = '\0';
    return o.n;
}

/* --- reading --- */

/* A number up to one of these characters, or the end of the text. False: it is none. */
static bool number(const char **text, const char *stops, int base, uint64_t most, uint64_t *ret)
{
    uint64_t value = 0;
    const char *p = *text;
    for (; *p && !strchr(stops, *p); p++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, *p);
        uint64_t digit = d ? (uint64_t)(d - digits) : 16;
        if (digit >= (uint64_t)base || value > (most - digit) / (uint64_t)base)
            return false;
        value = value * (uint64_t)base + digit;
    }
    if (p == *text)
        return false;
    *text = p;
    *ret = value;
    return true;
}

/* A text up to one of these characters, or the end. False: it is too long, or has other characters. */
static bool text_of(const char **text, const char *stops, char *ret, size_t size)
{
    size_t n = strcspn(*text, stops);
    if (n >= size)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!plain((*text)[i]))
            return false;
    memcpy(ret, *text, n);
    ret[n] = '\0';
    *text += n;
    return true;
}

static bool parse_field(const struct field *f, const char *value, struct sl_history_entry *e)
{
    char *at = (char *)e + f->at;
    uint64_t v = 0;
    if (f->kind == TEXT)
        return text_of(&value, "", at, f->size) && !*value;
    if (!number(&value, "", f->kind == HEX ? 16 : 10, f->kind == U32 ? UINT32_MAX : UINT64_MAX, &v))
        return false;
    uint32_t u32 = (uint32_t)v;
    memcpy(at, f->size == sizeof(v) ? (const void *)&v : (const void *)&u32, f->size);
    return true;
}

static bool parse_end(const char *value, struct sl_history_entry *e)
{
    char word[16];
    uint64_t code;
    if (!text_of(&value, ":", word, sizeof(word)) || *value++ != ':' ||
        !number(&value, "", 10, UINT32_MAX, &code))
        return false;
    for (size_t i = 0; i < END_WORDS; i++)
        if (strcmp(word, end_words[i]) == 0) {
            e->end = (enum sl_history_end)i;
            e->code = (uint32_t)code;
            return true;
        }
    return false;
}

static bool parse_gpus(const char *p, struct sl_history_entry *e)
{
    do {
        uint64_t index, asked = SL_HISTORY_NO_LIMIT, peak;
        uint32_t n = e->gpu_count;
        if (n == SL_HISTORY_GPUS || !number(&p, ":", 10, UINT32_MAX, &index) || *p++ != ':' ||
            !text_of(&p, ":", e->gpu[n].uuid, sizeof(e->gpu[n].uuid)) || *p++ != ':')
            return false;
        if (p[0] == '-' && p[1] == ':')
            p++;
        else if (!number(&p, ":", 10, UINT64_MAX, &asked))
            return false;
        if (*p++ != ':' || !number(&p, ",", 10, UINT64_MAX, &peak))
            return false;
        e->gpu[n].index = (uint32_t)index;
        e->gpu[n].asked_bytes = asked;
        e->gpu[n].peak_bytes = peak;
        e->gpu_count++;
    } while (*p++ == ',');
    return true;
}

static bool parse_word(const char *word, struct sl_history_entry *e)
{
    const char *value = strchr(word, '=');
    if (!value)
        return false;
    size_t n = (size_t)(value++ - word);
    if (n == 5 && memcmp(word, "ended", n) == 0)
        return parse_end(value, e);
    if (n == 4 && memcmp(word, "gpus", n) == 0)
        return e->gpu_count == 0 && parse_gpus(value, e);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (strlen(fields[i].key) == n && memcmp(word, fields[i].key, n) == 0)
            return parse_field(&fields[i], value, e);
    return true; /* of a later build */
}

bool sl_history_parse(const char *line, size_t size, struct sl_history_entry *ret)
{
    static const char mark[] = " sum=";
    const size_t tail = sizeof(mark) - 1 + 8;
    char text[SL_HISTORY_LINE_MAX];
    struct sl_history_entry e = {.cores_limit_permille = 1000};
    uint64_t sum;
    if (size <= tail || size >= sizeof(text) || memchr(line, '\0', size))
        return false;
    memcpy(text, line, size);
    text[size] = '\0';
    const char *p = text + size - tail;
    if (memcmp(p, mark, sizeof(mark) - 1) != 0)
        return false;
    p += sizeof(mark) - 1;
    if (!number(&p, "", 16, UINT32_MAX, &sum) || sum != checksum(text, size - tail))
        return false;
    text[size - tail] = '\0';
    char *rest = NULL, *word = strtok_r(text, " ", &rest);
    if (!word || strcmp(word, FIRST_WORD) != 0)
        return false;
    while ((word = strtok_r(NULL, " ", &rest)))
        if (!parse_word(word, &e))
            return false;
    if (!e.name[0])
        return false;
    *ret = e;
    return true;
}

/* --- what it says --- */

bool sl_history_got(const struct sl_history_entry *e, uint32_t *ret_permille)
{
    if (e->measured_ms == 0)
        return false;
    /* Both are made of millions of short spans: they may differ by a few of them. */
    uint64_t used = e->used_ms < e->measured_ms ? e->used_ms : e->measured_ms;
    *ret_permille = (uint32_t)((double)used * 1000.0 / (double)e->measured_ms + 0.5);
    return true;
}

/* Is a/b greater than c/d? Without a limit the fraction is that of nothing. */
static bool fuller(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return b && (!d || (double)a / (double)b > (double)c / (double)d);
}

uint32_t sl_history_fullest(const struct sl_history_entry *e)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < e->gpu_count; i++)
        if (fuller(e->gpu[i].peak_bytes, e->gpu[i].asked_bytes, e->gpu[at].peak_bytes,
                   e->gpu[at].asked_bytes))
            at = i;
    return at;
}
