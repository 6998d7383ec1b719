/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one value into its struct: one function for each type. */
#include <errno.h>
#include <regex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "base/units.h"
#include "base/words.h"
#include "base/xalloc.h"
#include "config/errors.h"
#include "config/schema.h"

/* The arguments of a setter. */
struct set {
    const struct sl_draft *d;
    const struct sl_schema_row *row;
    void *field; /* the row's place in its struct */
    const struct sl_scalar *s;
    struct sl_err *err;
};

#define FAIL(set_, ...) fail((set_), __VA_ARGS__)
static int SL_PRINTF(2, 3) fail(const struct set *w, const char *fmt, ...)
{
    char text[260];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    bool in_file = w->s->at.line > 0;
    return sl_config_fail(w->d, w->s->at, w->err, -EINVAL, "%s%s%s", in_file ? w->row->path : "",
                          in_file ? ": " : "", text);
}

bool sl_scalar_is_null(const struct sl_scalar *s)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; i < SL_ARRAY_LEN(nulls) && !s->quoted && !s->outside; i++)
        if (strcmp(s->text, nulls[i]) == 0)
            return true;
    return false;
}

static int set_version(const struct set *w)
{
    if (strcmp(w->s->text, "v1") == 0)
        return 0;
    return FAIL(w, SL_E_VERSION_UNKNOWN, w->s->text);
}

/* In the file the words of YAML 1.1, outside the words of Go's flag parser. */
static int set_bool(const struct set *w)
{
    static const char *const file_words[2][4] = {{"false", "no", "off", "n"},
                                                 {"true", "yes", "on", "y"}};
    static const char *const outside_words[2][4] = {{"false", "0", "f", ""},
                                                    {"true", "1", "t", ""}};
    if (w->s->quoted)
        return FAIL(w, SL_E_BOOL_QUOTED, w->s->text);
    if (w->s->outside && w->s->len == 0)
        return FAIL(w, SL_E_BOOL_MISSING);
    for (int value = 0; value < 2; value++)
        for (size_t i = 0; i < 4; i++) {
            const char *word = (w->s->outside ? outside_words : file_words)[value][i];
            if (strcasecmp(w->s->text, word) == 0) {
                *(bool *)w->field = value == 1;
                return 0;
            }
        }
    return FAIL(w, SL_E_BOOL_BAD, w->s->text);
}

/* Lists the possible words, and names the word that was probably meant. */
static int wrong_word(const struct set *w)
{
    char list[160];
    int n = 0;
    for (size_t i = 0; w->row->words[i] && n >= 0 && (size_t)n < sizeof(list); i++)
        n += snprintf(list + n, sizeof(list) - (size_t)n, "%s%s",
                      i == 0                 ? ""
                      : w->row->words[i + 1] ? ", "
                                             : " or ",
                      w->row->words[i]);
    const char *close = sl_word_closest(w->s->text, w->row->words);
    if (close)
        return FAIL(w, SL_E_WORD_UNKNOWN_NEAR, w->s->text, close, list);
    return FAIL(w, SL_E_WORD_UNKNOWN, w->s->text, list);
}

static int word_index(const struct set *w)
{
    for (int i = 0; w->row->words[i]; i++)
        if (strcmp(w->s->text, w->row->words[i]) == 0)
            return i;
    return wrong_word(w);
}

static int set_enum(const struct set *w)
{
    int i = word_index(w);
    if (i >= 0)
        *(unsigned *)w->field = (unsigned)i;
    return i < 0 ? i : 0;
}

static int set_string(const struct set *w)
{
    *(char **)w->field = sl_xstrdup(w->s->text);
    return 0;
}

static int set_word(const struct set *w)
{
    int i = word_index(w);
    return i < 0 ? i : set_string(w);
}

/* Lower-case letters, digits, '-' and '.'; each part between dots begins and ends with a letter or digit. The API
 * server allows such a text after the '/'. */
static bool is_subdomain(const char *name)
{
    char before = '.';
    for (; *name; before = *name++) {
        bool alnum = (*name >= 'a' && *name <= 'z') || (*name >= '0' && *name <= '9');
        if (!alnum && *name != '-' && *name != '.')
            return false;
        if (!alnum && before == '.')
            return false;
        if (*name == '.' && before == '-')
            return false;
    }
    return before != '-' && before != '.';
}

/* The letters that Kubernetes allows in a resource name after the '/', as users of KubeVirt write them. */
static bool is_qualified(const char *name)
{
    static const char inside[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t n = strlen(name);
    return strspn(name, inside) == n && !strchr("-_.", name[0]) && !strchr("-_.", name[n - 1]);
}

/* Adds the domain, refuses a name that Kubernetes would refuse. */
static int set_name(const struct set *w)
{
    const struct sl_scalar *s = w->s;
    const char *name = s->text;
    if (strchr(name, '/')) {
        if (strncmp(name, SL_DOMAIN, strlen(SL_DOMAIN)) != 0)
            return sl_config_fail(w->d, s->at, w->err, -EINVAL, SL_E_RESOURCE_DOMAIN, s->text);
        name += strlen(SL_DOMAIN);
    }
    if (!*name)
        return sl_config_fail(w->d, s->at, w->err, -EINVAL, SL_E_RESOURCE_EMPTY);
    size_t len = strlen(SL_DOMAIN) + strlen(name);
    if (len > SL_RESOURCE_NAME_MAX)
        return sl_config_fail(w->d, s->at, w->err, -EINVAL, SL_E_RESOURCE_LONG, SL_DOMAIN, name,
                              len, SL_RESOURCE_NAME_MAX);
    if (w->row->type == SL_TYPE_VM_NAME && !is_qualified(name))
        return sl_config_fail(w->d, s->at, w->err, -EINVAL, SL_E_VM_RESOURCE_BAD, s->text);
    if (w->row->type == SL_TYPE_NAME && !is_subdomain(name))
        return sl_config_fail(w->d, s->at, w->err, -EINVAL, SL_E_RESOURCE_BAD, s->text);
    *(char **)w->field = sl_xasprintf(SL_DOMAIN "%s", name);
    return 0;
}

/* Decimal digits only; false for any other character and for a number beyond 64 bits. */
static bool number(const char *text, uint64_t *ret)
{
    const char *rest = sl_number_read(text, UINT64_MAX, ret);
    return rest && !*rest;
}

static int set_unsigned(const struct set *w)
{
    uint64_t n = 0;
    if (w->s->quoted)
        return FAIL(w, SL_E_NUMBER_QUOTED, w->s->text);
    size_t digits = strspn(w->s->text + (w->s->text[0] == '-'), "0123456789");
    if (digits == 0 || w->s->text[digits + (w->s->text[0] == '-')] != '\0')
        return FAIL(w, SL_E_NUMBER_BAD, w->s->text);
    bool fits = number(w->s->text, &n);
    if (w->s->text[0] == '-' || (fits && n < w->row->min))
        return FAIL(w, SL_E_NUMBER_LOW, w->s->text, (unsigned)w->row->min,
                    w->row->min == 2 ? ", because with fewer nothing is shared" : "");
    if (!fits || n > w->row->max)
        return FAIL(w, SL_E_NUMBER_HIGH, w->s->text, (unsigned)w->row->max,
                    w->row->max == SL_MAX_REPLICAS ? ", because kubelet keeps a record of each "
                                                     "replica"
                    : w->row->max == SL_MAX_MPS_CLIENTS
                        ? ", because an MPS server has no more clients on a card"
                        : "");
    *(unsigned *)w->field = (unsigned)n;
    return 0;
}

static int set_bytes(const struct set *w)
{
    struct sl_memory_amount amount = {0};
    struct sl_err why = SL_ERR_INIT;
    if (sl_parse_memory(w->s->text, &amount, &why) < 0)
        return FAIL(w, "%s", why.msg);
    if (amount.percent)
        return FAIL(w, SL_E_AMOUNT_OF_CARD, w->s->text);
    *(uint64_t *)w->field = amount.bytes;
    return 0;
}

/* Go's durations: 60s, 1m30s, 1.5h. Each part is a number and a unit. */
static bool duration(const char *text, uint64_t *ret_ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } unit[] = {{"ns", 1},
                {"us", 1000},
                {"ms", 1000000},
                {"s", SL_NS_PER_S},
                {"m", 60 * SL_NS_PER_S},
                {"h", 3600 * SL_NS_PER_S}};
    const uint64_t most = 1000000000 * SL_NS_PER_S; /* thirty years; nine digits */
    uint64_t total = 0;
    while (*text) {
        unsigned __int128 billionths;
        const char *rest = sl_decimal_read(text, &billionths);
        size_t letters = rest ? strcspn(rest, "0123456789.") : 0, u = 0;
        while (u < SL_ARRAY_LEN(unit) &&
               (strlen(unit[u].name) != letters || memcmp(unit[u].name, rest, letters) != 0))
            u++;
        if (u == SL_ARRAY_LEN(unit) || billionths / 1000000000 >= most / unit[u].ns)
            return false;
        total += (uint64_t)(billionths * unit[u].ns / 1000000000);
        if (total >= most)
            return false;
        text = rest + letters;
    }
    *ret_ns = total;
    return total > 0;
}

static int set_duration(const struct set *w)
{
    uint64_t ns = 0;
    if (strcmp(w->s->text, "infinite") == 0)
        ns = UINT64_MAX;
    else if (!duration(w->s->text, &ns))
        return FAIL(w, SL_E_DURATION_BAD, w->s->text);
    *(uint64_t *)w->field = ns;
    return 0;
}

static int add_strategy(const struct set *w)
{
    int i = word_index(w);
    if (i < 0)
        return i;
    *(unsigned *)w->field |= 1U << i;
    return 0;
}

static int add_channel(const struct set *w)
{
    if (strcmp(w->s->text, "0") != 0)
        return FAIL(w, SL_E_CHANNEL_BAD, w->s->text);
    *(bool *)w->field = true;
    return 0;
}

static int add_xid(const struct set *w)
{
    struct sl_xid_list *list = w->field;
    uint64_t xid = 0;
    if (strcasecmp(w->s->text, "all") == 0 || strcasecmp(w->s->text, "xids") == 0) {
        list->all = true;
        return 0;
    }
    if (!number(w->s->text, &xid))
        return FAIL(w, SL_E_XID_BAD, w->s->text);
    list->xid = sl_xreallocarray(list->xid, list->count + 1, sizeof(*list->xid));
    list->xid[list->count++] = xid;
    return 0;
}

/* "0", "0:1" for a MIG device, or a UUID: "GPU-…", "MIG-…" or, before driver 470, "MIG-GPU-…/1/0". */
static bool is_device(const char *text)
{
#define HEX  "[0-9a-fA-F]"
#define UUID HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"
    static const char pattern[] =
        "^([0-9]{1,4}(:[0-9]{1,4})?|(GPU|MIG)-" UUID "|MIG-GPU-" UUID "/[0-9]+/[0-9]+)$";
    regex_t r;
    if (regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        sl_out_of_memory();
    bool matches = regexec(&r, text, 0, NULL, 0) == 0;
    regfree(&r);
    return matches && strlen(text) < SL_GPU_UUID_TEXT;
}

static int add_device(const struct set *w)
{
    struct sl_config_shared *shared = w->field;
    if (!is_device(w->s->text))
        return FAIL(w, SL_E_DEVICE_BAD, w->s->text);
    for (size_t i = 0; i < shared->devices_count; i++)
        if (strcmp(shared->devices[i], w->s->text) == 0)
            return FAIL(w, SL_E_DEVICE_TWICE, w->s->text);
    shared->devices =
        sl_xreallocarray(shared->devices, shared->devices_count + 1, sizeof(*shared->devices));
    shared->devices[shared->devices_count++] = sl_xstrdup(w->s->text);
    return 0;
}

/* "GPU-…", or a PCI address as sysfs writes it. */
static bool is_card(const char *text)
{
    static const char pattern[] = "^(GPU-" UUID "|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7])$";
    regex_t r;
    if (regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        sl_out_of_memory();
    bool matches = regexec(&r, text, 0, NULL, 0) == 0;
    regfree(&r);
    return matches;
}

static int add_card(const struct set *w)
{
    struct sl_config_texts *list = w->field;
    if (!is_card(w->s->text))
        return FAIL(w, SL_E_CARD_BAD, w->s->text);
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->text[i], w->s->text) == 0)
            return FAIL(w, SL_E_DEVICE_TWICE, w->s->text);
    list->text = sl_xreallocarray(list->text, list->count + 1, sizeof(*list->text));
    list->text[list->count++] = sl_xstrdup(w->s->text);
    return 0;
}

/* No list: "all", or a number of devices. */
static int set_devices(const struct set *w)
{
    struct sl_config_shared *shared = w->field;
    uint64_t n = 0;
    if (strcmp(w->s->text, "all") == 0) {
        shared->all_devices = true;
        return 0;
    }
    if (!w->s->quoted && number(w->s->text, &n) && n >= 1 && n <= 64) {
        shared->device_count = (unsigned)n;
        return 0;
    }
    return FAIL(w, SL_E_DEVICES_BAD, w->s->text);
}

typedef int setter(const struct set *w);
static setter *const one[] = {
    [SL_TYPE_VERSION] = set_version,   [SL_TYPE_BOOL] = set_bool,
    [SL_TYPE_ENUM] = set_enum,         [SL_TYPE_WORD] = set_word,
    [SL_TYPE_STRING] = set_string,     [SL_TYPE_NAME] = set_name,
    [SL_TYPE_UNSIGNED] = set_unsigned, [SL_TYPE_BYTES] = set_bytes,
    [SL_TYPE_DURATION] = set_duration, [SL_TYPE_STRATEGIES] = add_strategy,
    [SL_TYPE_CHANNELS] = add_channel,  [SL_TYPE_DEVICES] = set_devices,
    [SL_TYPE_XIDS] = add_xid,          [SL_TYPE_VM_NAME] = set_name,
    [SL_TYPE_CARDS] = add_card,
};
static setter *const element[] = {
    [SL_TYPE_STRATEGIES] = add_strategy,
    [SL_TYPE_CHANNELS] = add_channel,
    [SL_TYPE_DEVICES] = add_device,
    [SL_TYPE_CARDS] = add_card,
    [SL_TYPE_XIDS] = add_xid,
};

static int check_text(const struct set *w)
{
    for (size_t i = 0; i < w->s->len; i++)
        if (w->s->text[i] < ' ' || w->s->text[i] > '~')
            return FAIL(w, SL_E_NOT_ASCII, w->s->text);
    return 0;
}

/* Outside the file a list has commas; an empty text is the empty list. */
static int set_list(const struct set *w)
{
    SL_CLEANUP(free) char *copy = sl_xstrdup(w->s->text);
    char *save = NULL;
    for (char *word = strtok_r(copy, ", ", &save); word; word = strtok_r(NULL, ", ", &save)) {
        struct sl_scalar s = *w->s;
        struct set part = *w;
        s.text = word;
        s.len = strlen(word);
        part.s = &s;
        int rc = one[w->row->type](&part);
        if (rc < 0)
            return rc;
    }
    return 0;
}

bool sl_value_is_list(enum sl_schema_type type)
{
    return (size_t)type < SL_ARRAY_LEN(element) && element[type];
}

int sl_value_add(const struct sl_draft *d, const struct sl_schema_row *row, void *base,
                 const struct sl_scalar *s, struct sl_err *err)
{
    struct set w = {d, row, (char *)base + row->offset, s, err};
    int rc = check_text(&w);
    if (rc < 0)
        return rc;
    return s->outside ? set_list(&w) : element[row->type](&w);
}

int sl_value_set(const struct sl_draft *d, const struct sl_schema_row *row, void *base,
                 const struct sl_scalar *s, struct sl_err *err)
{
    struct set w = {d, row, (char *)base + row->offset, s, err};
    int rc = check_text(&w);
    if (rc < 0)
        return rc;
    sl_value_clear(row, base);
    return s->outside && sl_value_is_list(row->type) ? set_list(&w) : one[row->type](&w);
}
