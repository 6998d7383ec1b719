/* SPDX-License-Identifier: Apache-2.0 */
/* Reads nodes and pods from CSV. Columns are found by name, so extra columns and any order are fine. */
#include "cli/simulate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/quantity.h"
#include "base/xalloc.h"
#include "cli/errors.h"

#define MAX_FILE_BYTES (256u << 20)
#define MAX_COLUMNS    64

struct csv {
    const char *path;
    char *next;
    unsigned line;
    unsigned count; /* fields of the current line */
    char *fields[MAX_COLUMNS];
    unsigned columns[MAX_COLUMNS]; /* where in the line each field starts, from 1 */
};

static int csv_error(const struct csv *c, unsigned field, struct sl_err *err, const char *what,
                     const char *value)
{
    unsigned column = field < c->count ? c->columns[field] : 1;
    return sl_err_set(err, -EINVAL, "%s:%u:%u: %s%s%.60s%s", c->path, c->line, column, what,
                      value ? " \"" : "", value ? value : "", value ? "\"" : "");
}

/* Splits the next line that is not empty. 1: a line, 0: the end, negative: an error. */
static int csv_line(struct csv *c, struct sl_err *err)
{
    char *s = c->next;
    for (; *s == '\n' || (*s == '\r' && s[1] == '\n'); s++)
        c->line += *s == '\n';
    if (!*s)
        return 0;
    c->line++;
    char *start = s;
    c->count = 0;
    for (;;) {
        if (c->count == MAX_COLUMNS)
            return csv_error(c, 0, err, SL_E_CSV_COLUMNS, NULL);
        char *field = s;
        c->columns[c->count] = (unsigned)(s - start) + 1;
        size_t n = strcspn(s, ",\r\n");
        char *end = s + n, stop = *end;
        s = end + (stop == '\r' && end[1] == '\n' ? 2 : stop ? 1 : 0);
        *end = '\0';
        if (n >= 2 && field[0] == '"' && end[-1] == '"') {
            field++;
            end[-1] = '\0';
        }
        c->fields[c->count++] = field;
        if (stop != ',')
            break;
    }
    c->next = s;
    return 1;
}

static int csv_open(struct csv *c, const char *path, char **ret_text, struct sl_err *err)
{
    size_t size = 0;
    int rc = sl_fs_read(AT_FDCWD, path, MAX_FILE_BYTES, ret_text, &size, err);
    if (rc)
        return rc;
    *c = (struct csv){.path = path, .next = *ret_text};
    if (strlen(*ret_text) != size) {
        c->line = 1;
        return csv_error(c, 0, err, SL_E_CSV_NUL, NULL);
    }
    if (memcmp(*ret_text, "\xef\xbb\xbf", size < 3 ? size : 3) == 0 && size >= 3)
        c->next += 3;
    return 0;
}

/* Finds the named columns in the header; a NULL-terminated list, required ones first. */
static int csv_header(struct csv *c, const char *const *names, unsigned required, int *ret_at,
                      struct sl_err *err)
{
    int rc = csv_line(c, err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        c->line = 1;
        return csv_error(c, 0, err, SL_E_CSV_EMPTY, NULL);
    }
    for (unsigned i = 0; names[i]; i++) {
        ret_at[i] = -1;
        for (unsigned f = 0; f < c->count; f++)
            if (strcmp(c->fields[f], names[i]) == 0)
                ret_at[i] = (int)f;
        if (ret_at[i] < 0 && i < required)
            return csv_error(c, 0, err, SL_E_CSV_NO_COLUMN, names[i]);
    }
    return 0;
}

/* A column that the file does not have leaves *ret as it is. */
static int csv_number(const struct csv *c, int field, const char *name, uint64_t max, uint64_t *ret,
                      struct sl_err *err)
{
    char what[80];
    uint64_t value = 0;
    if (field < 0)
        return 0;
    (void)snprintf(what, sizeof(what), "column %s: not a number from 0 to %llu:", name,
                   (unsigned long long)max);
    const char *s = c->fields[field], *rest = sl_number_read(s, max, &value);
    if (!rest || *rest)
        return csv_error(c, (unsigned)field, err, what, s);
    *ret = value;
    return 0;
}

/* The rows of a file, read line by line. `read` gets the fields by the columns' numbers; -1: no such column. */
struct table {
    const char *const *columns; /* NULL-terminated, required ones first */
    unsigned required;
    int (*read)(const struct csv *c, const int *at, void *ret, struct sl_err *err);
};

static int csv_read(const char *path, const struct table *t, void *ret, struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    struct csv c;
    int at[MAX_COLUMNS];
    int rc = csv_open(&c, path, &text, err);
    if (!rc)
        rc = csv_header(&c, t->columns, t->required, at, err);
    while (!rc) {
        int more = csv_line(&c, err);
        if (more <= 0)
            return more;
        for (unsigned i = 0; t->columns[i]; i++)
            if (at[i] >= (int)c.count)
                return csv_error(&c, c.count - 1, err, SL_E_CSV_SHORT_LINE, NULL);
        rc = t->read(&c, at, ret, err);
    }
    return rc;
}

int sl_sim_model_number(struct sim_models *models, const char *name, size_t length)
{
    if (length == 0 || length >= SIM_MODEL_NAME)
        return -1;
    for (unsigned i = 0; i < models->count; i++)
        if (strlen(models->names[i]) == length && memcmp(models->names[i], name, length) == 0)
            return (int)i;
    if (models->count == SL_PLACE_MAX_MODELS)
        return -1;
    memcpy(models->names[models->count], name, length);
    models->names[models->count][length] = '\0';
    return (int)models->count++;
}

/* One more element, room doubling. */
static void *append(void **array, size_t count, size_t size)
{
    if ((count & (count - 1)) == 0)
        *array = sl_xreallocarray(*array, count ? count * 2 : 1, size);
    void *at = (char *)*array + count * size;
    memset(at, 0, size);
    return at;
}

enum { NODE_CPU, NODE_MEMORY, NODE_GPU, NODE_MODEL, NODE_GPU_MEMORY };
static const char *const node_columns[] = {"cpu_milli", "memory_mib",     "gpu",
                                           "model",     "gpu_memory_mib", NULL};

static int node_line(const struct csv *c, const int *at, void *data, struct sl_err *err)
{
    struct sim_cluster *ret = data;
    uint64_t cpu = 0, memory = 0, gpus = 0, gpu_memory = 0;
    int rc = csv_number(c, at[NODE_CPU], "cpu_milli", UINT32_MAX, &cpu, err);
    if (!rc)
        rc = csv_number(c, at[NODE_MEMORY], "memory_mib", UINT32_MAX, &memory, err);
    if (!rc)
        rc = csv_number(c, at[NODE_GPU], "gpu", SL_PLACE_MAX_GPUS, &gpus, err);
    if (!rc)
        rc = csv_number(c, at[NODE_GPU_MEMORY], "gpu_memory_mib", UINT32_MAX, &gpu_memory, err);
    if (rc)
        return rc;
    if (gpus == 0)
        return 0;
    const char *name = c->fields[at[NODE_MODEL]];
    int model = sl_sim_model_number(&ret->models, name, strlen(name));
    if (model < 0)
        return csv_error(c, (unsigned)at[NODE_MODEL], err, SL_E_CSV_MODEL, name);
    struct sl_place_node *n = append((void **)&ret->nodes, ret->count, sizeof(*n));
    ret->count++;
    *n = (struct sl_place_node){.cpu_milli = (uint32_t)cpu,
                                .memory_mib = (uint32_t)memory,
                                .model = (uint8_t)model,
                                .gpu_count = (uint8_t)gpus};
    for (unsigned g = 0; g < gpus; g++)
        n->gpus[g].memory_mib = (uint32_t)gpu_memory;
    ret->gpu_milli += gpus * 1000;
    return 0;
}

int sl_sim_cluster_load(const char *path, struct sim_cluster *ret, struct sl_err *err)
{
    static const struct table nodes = {node_columns, NODE_MODEL + 1, node_line};
    *ret = (struct sim_cluster){0};
    int rc = csv_read(path, &nodes, ret, err);
    if (!rc && ret->count == 0)
        rc = sl_err_set(err, -EINVAL, SL_E_SIM_NO_GPU_NODES, path);
    if (rc)
        sl_sim_cluster_fini(ret);
    return rc;
}

enum {
    POD_CPU,
    POD_MEMORY,
    POD_NUM,
    POD_MILLI,
    POD_SPEC,
    POD_CREATED,
    POD_DELETED,
    POD_GPU_MEMORY
};
static const char *const pod_columns[] = {"cpu_milli",     "memory_mib",     "num_gpu",
                                          "gpu_milli",     "gpu_spec",       "creation_time",
                                          "deletion_time", "gpu_memory_mib", NULL};

static int pod_models(const struct csv *c, int field, struct sim_models *models, uint64_t *ret,
                      struct sl_err *err)
{
    const char *s = c->fields[field];
    *ret = 0;
    while (*s) {
        size_t n = strcspn(s, "|");
        int model = sl_sim_model_number(models, s, n);
        if (model < 0)
            return csv_error(c, (unsigned)field, err, SL_E_CSV_GPU_SPEC, c->fields[field]);
        *ret |= 1ULL << model;
        s += n + (s[n] == '|');
    }
    return 0;
}

/* Pods of a file, whose models are numbered as the cluster's. */
struct pods_of {
    struct sim_models *models;
    struct sim_pods *pods;
};

static int pod_line(const struct csv *c, const int *at, void *data, struct sl_err *err)
{
    const struct pods_of *of = data;
    struct sim_pods *ret = of->pods;
    uint64_t cpu = 0, memory = 0, num = 0, milli = 0, spec = 0, gpu_memory = 0;
    uint64_t created = 0, deleted = 0;
    int rc = csv_number(c, at[POD_CPU], "cpu_milli", UINT32_MAX, &cpu, err);
    if (!rc)
        rc = csv_number(c, at[POD_MEMORY], "memory_mib", UINT32_MAX, &memory, err);
    if (!rc)
        rc = csv_number(c, at[POD_NUM], "num_gpu", SL_PLACE_MAX_GPUS, &num, err);
    if (!rc)
        rc = csv_number(c, at[POD_MILLI], "gpu_milli", 1000, &milli, err);
    if (!rc && at[POD_SPEC] >= 0)
        rc = pod_models(c, at[POD_SPEC], of->models, &spec, err);
    if (!rc)
        rc = csv_number(c, at[POD_GPU_MEMORY], "gpu_memory_mib", UINT32_MAX, &gpu_memory, err);
    if (rc)
        return rc;
    if (num && !milli && !gpu_memory)
        return csv_error(c, (unsigned)at[POD_MILLI], err, SL_E_CSV_GPU_MILLI, NULL);
    struct sim_pod *pod = append((void **)&ret->pods, ret->count, sizeof(*pod));
    ret->count++;
    pod->request.cpu_milli = (uint32_t)cpu;
    pod->request.memory_mib = (uint32_t)memory;
    if (num) {
        pod->request.gpu_count = (uint8_t)num;
        pod->request.cores_permille = (uint16_t)milli;
        pod->request.gpu_memory_mib = (uint32_t)gpu_memory;
        pod->request.models = spec;
    }
    pod->worth_milli = (uint32_t)(num * milli);
    /* A pod that still runs has no second time. A time that cannot be read counts as absent. */
    if (csv_number(c, at[POD_CREATED], "creation_time", UINT32_MAX, &created, NULL) ||
        csv_number(c, at[POD_DELETED], "deletion_time", UINT32_MAX, &deleted, NULL))
        deleted = 0;
    if (at[POD_CREATED] >= 0 && deleted > created)
        pod->runtime_s = (uint32_t)(deleted - created);
    ret->gpu_milli += num * milli;
    return 0;
}

int sl_sim_pods_load(const char *path, struct sim_models *models, struct sim_pods *ret,
                     struct sl_err *err)
{
    static const struct table pods = {pod_columns, POD_MILLI + 1, pod_line};
    struct pods_of of = {models, ret};
    *ret = (struct sim_pods){0};
    int rc = csv_read(path, &pods, &of, err);
    if (!rc && ret->gpu_milli == 0)
        rc = sl_err_set(err, -EINVAL, SL_E_SIM_NO_GPU_PODS, path);
    if (rc)
        sl_sim_pods_fini(ret);
    return rc;
}

void sl_sim_cluster_fini(struct sim_cluster *c)
{
    free(c->nodes);
    c->nodes = NULL;
    c->count = 0;
}

void sl_sim_pods_fini(struct sim_pods *p)
{
    free(p->pods);
    p->pods = NULL;
    p->count = 0;
}
