/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake kubelet as a program, for scripts that test or measure a whole sluiced: commands on stdin, one
 * line of answer each.
 *   kubelet_tool DIR
 *   wait RESOURCE DEVICES HEALTHY SECONDS   ok NANOSECONDS (CLOCK_MONOTONIC, when it was so) | no DEVICES HEALTHY
 *   list RESOURCE                           the healthy ids, in the list's order
 *   allocate RESOURCE ID…                   the answer as JSON | error TEXT
 *   stop | start                            kubelet killed, kubelet started
 *   counts RESOURCE                         registrations, lists, blips
 *   options RESOURCE                        1 where PreStartContainer is wanted, else 0
 *   prestart RESOURCE IDS…                  a container a word (ids with commas), all at once: a JSON list of the answers, "" is good
 *   podres PATH | off | silent | blank | on PodResources at PATH; gone; not answering; knowing of nothing; well
 *   place NAMESPACE POD CONTAINER RESOURCE ID…, remove NAMESPACE POD     what it lists
 */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* cmocka's header needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "base/clock.h"
#include "deviceplugin.pb-c.h"
#include "fake_kubelet.h"
#include "fake_podres.h"

static struct fake_kubelet kubelet;
static struct fake_podres podres;
static struct sl_loop *loop;

static void step(int ms)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_loop_step(loop, ms, &err) < 0) {
        (void)fprintf(stderr, "kubelet_tool: %s\n", err.msg);
        exit(1);
    }
}

static void wait_for(const char *name, size_t devices, size_t healthy, double seconds)
{
    uint64_t until = sl_now_ns() + (uint64_t)(seconds * 1e9);
    const struct fake_resource *r;
    do {
        r = fake_find(&kubelet, name);
        if (devices == 0 ? !r || r->devices == 0
                         : r && r->devices == devices && r->healthy == healthy) {
            printf("ok %llu\n", (unsigned long long)sl_now_ns());
            return;
        }
        step(5);
    } while (sl_now_ns() < until);
    printf("no %zu %zu\n", r ? r->devices : 0, r ? r->healthy : 0);
}

static void list(const char *name)
{
    const struct fake_resource *r = fake_find(&kubelet, name);
    for (size_t i = 0; r && i < r->devices; i++)
        if (r->ok[i])
            printf("%s ", r->id[i]);
    printf("\n");
}

static json_t *container(const Dp__ContainerAllocateResponse *c)
{
    json_t *o = json_object(), *envs = json_object(), *mounts = json_array(), *nodes = json_array(),
           *cdi = json_array(), *notes = json_object();
    for (size_t i = 0; i < c->n_envs; i++)
        json_object_set_new(envs, c->envs[i]->key, json_string(c->envs[i]->value));
    for (size_t i = 0; i < c->n_annotations; i++)
        json_object_set_new(notes, c->annotations[i]->key, json_string(c->annotations[i]->value));
    for (size_t i = 0; i < c->n_mounts; i++)
        json_array_append_new(mounts, json_pack("{ss,ss}", "host", c->mounts[i]->host_path,
                                                "container", c->mounts[i]->container_path));
    for (size_t i = 0; i < c->n_devices; i++)
        json_array_append_new(nodes, json_string(c->devices[i]->host_path));
    for (size_t i = 0; i < c->n_cdi_devices; i++)
        json_array_append_new(cdi, json_string(c->cdi_devices[i]->name));
    json_object_set_new(o, "envs", envs);
    json_object_set_new(o, "annotations", notes);
    json_object_set_new(o, "mounts", mounts);
    json_object_set_new(o, "devices", nodes);
    json_object_set_new(o, "cdi", cdi);
    return o;
}

static void allocate(const char *name, const char *const *ids, size_t n)
{
    struct fake_resource *r = fake_find(&kubelet, name);
    struct fake_call call = {0};
    if (!r) {
        printf("error no resource %s\n", name);
        return;
    }
    fake_allocate(r, ids, n, &call);
    while (!call.done)
        step(10);
    Dp__AllocateResponse *a =
        call.code == SL_RPC_OK ? dp__allocate_response__unpack(NULL, call.size, call.answer) : NULL;
    if (a && a->n_container_responses == 1) {
        json_t *o = container(a->container_responses[0]);
        char *text = json_dumps(o, JSON_COMPACT);
        printf("%s\n", text);
        free(text);
        json_decref(o);
    } else {
        printf("error %s\n", call.text);
    }
    if (a)
        dp__allocate_response__free_unpacked(a, NULL);
    fake_call_free(&call);
}

/* Kubelet gives a container 30 s. */
static void prestart(const char *name, char **words, size_t n)
{
    static struct fake_call call[64];
    struct fake_resource *r = fake_find(&kubelet, name);
    json_t *answers = json_array();
    for (size_t i = 0; r && i < n; i++) {
        const char *ids[16];
        size_t count = 0;
        char *rest = NULL;
        for (char *id = strtok_r(words[i], ",", &rest); id && count < 16;
             id = strtok_r(NULL, ",", &rest))
            ids[count++] = id;
        call[i] = (struct fake_call){
            .done = true, .code = SL_RPC_UNAVAILABLE, .text = "the plugin is not there"};
        if (r->client && sl_rpc_client_usable(r->client))
            fake_prestart(r, ids, count, 30 * SL_NS_PER_S, &call[i]);
    }
    for (size_t i = 0; r && i < n; i++) {
        while (!call[i].done)
            step(10);
        json_array_append_new(answers, json_string(call[i].code == SL_RPC_OK ? "" : call[i].text));
        fake_call_free(&call[i]);
    }
    char *text = json_dumps(answers, JSON_COMPACT);
    printf("%s\n", text);
    free(text);
    json_decref(answers);
}

static bool run_podres(char **word, size_t n)
{
    if (n == 2 && strcmp(word[0], "podres") == 0) {
        podres.silent = strcmp(word[1], "silent") == 0;
        podres.blank = strcmp(word[1], "blank") == 0;
        if (strcmp(word[1], "off") == 0)
            fake_podres_stop(&podres);
        else if (word[1][0] == '/')
            fake_podres_start(&podres, loop, word[1]);
    } else if (n >= 6 && strcmp(word[0], "place") == 0) {
        for (size_t i = 5; i < n; i++)
            fake_podres_place(&podres, word[1], word[2], word[3], word[4], word[i]);
    } else if (n == 3 && strcmp(word[0], "remove") == 0) {
        fake_podres_remove(&podres, word[1], word[2]);
    } else {
        return false;
    }
    printf("ok %u\n", podres.asked);
    return true;
}

static void run(char *line, const char *dir)
{
    char *word[64];
    size_t n = 0;
    for (char *w = strtok(line, " \n"); w && n < 64; w = strtok(NULL, " \n"))
        word[n++] = w;
    if (n == 5 && strcmp(word[0], "wait") == 0) {
        wait_for(word[1], strtoul(word[2], NULL, 10), strtoul(word[3], NULL, 10),
                 strtod(word[4], NULL));
    } else if (n == 2 && strcmp(word[0], "list") == 0) {
        list(word[1]);
    } else if (n >= 3 && strcmp(word[0], "allocate") == 0) {
        allocate(word[1], (const char *const *)&word[2], n - 2);
    } else if (n == 2 && strcmp(word[0], "counts") == 0) {
        const struct fake_resource *r = fake_find(&kubelet, word[1]);
        printf("%u %u %u\n", r ? r->registrations : 0, r ? r->lists : 0, r ? r->blips : 0);
    } else if (n == 2 && strcmp(word[0], "options") == 0) {
        const struct fake_resource *r = fake_find(&kubelet, word[1]);
        printf("%d\n", r && r->prestart_registered && r->prestart);
    } else if (n >= 3 && strcmp(word[0], "prestart") == 0) {
        prestart(word[1], &word[2], n - 2);
    } else if (run_podres(word, n)) {
        /* answered */
    } else if (n == 1 && strcmp(word[0], "stop") == 0) {
        fake_stop(&kubelet, true);
        printf("ok\n");
    } else if (n == 1 && strcmp(word[0], "start") == 0) {
        fake_start(&kubelet, loop, dir);
        printf("ok %llu\n", (unsigned long long)sl_now_ns());
    } else {
        printf("error what?\n");
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    char line[8192];
    if (argc != 2 || sl_loop_create(NULL, &loop, &err) < 0) {
        (void)fprintf(stderr, "usage: kubelet_tool DIR\n");
        return 2;
    }
    fake_start(&kubelet, loop, argv[1]);
    setvbuf(stdin, NULL, _IONBF, 0);
    for (;;) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = sl_loop_fd(loop), .events = POLLIN}};
        (void)poll(fds, 2, -1);
        if (fds[1].revents)
            step(0);
        if (!fds[0].revents)
            continue;
        if (!fgets(line, sizeof(line), stdin))
            break;
        run(line, argv[1]);
    }
    fake_stop(&kubelet, false);
    fake_podres_stop(&podres);
    sl_loop_destroy(loop);
    return 0;
}
