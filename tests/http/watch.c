/* SPDX-License-Identifier: Apache-2.0 */
/* Watches against a server that does everything a real one does, and what it should not. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static struct fake fake;
static struct sl_kube *kube;
static struct sl_kube_watch *watch;

/* What the server was asked, and whom it streams to. */
static char paths[64][600];
static unsigned path_count, streams;
static struct fake_conn *stream;

/* What the watch told: one word a thing, "+name", "~name", "-name", "S", "!" */
static char told[4096];
static unsigned told_count, synced_count, trouble_count;
static struct sl_err last_trouble;
static const char *stop_at; /* the word at which the watch is stopped from inside */

/* The lists the server gives, one after the other; the last one for ever. */
static const char *lists[8];
static unsigned list_statuses[8], list_at;

static void __attribute__((format(printf, 1, 2))) say(const char *fmt, ...)
{
    char word[300];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(word, sizeof(word), fmt, args);
    va_end(args);
    assert_true(strlen(told) + strlen(word) + 2 < sizeof(told));
    if (told[0])
        strcat(told, " ");
    strcat(told, word);
    told_count++;
    if (stop_at && strcmp(stop_at, word) == 0) {
        sl_kube_watch_stop(watch);
        watch = NULL;
    }
}

static void on_object(void *data, enum sl_kube_event event, json_t *object)
{
    (void)data;
    say("%c%s", "+~-"[event], sl_kube_meta(object, "name"));
}

static void on_synced(void *data)
{
    (void)data;
    synced_count++;
    say("S");
}

static void on_trouble(void *data, const struct sl_err *err)
{
    (void)data;
    trouble_count++;
    last_trouble = *err;
    say("!");
}

static const struct sl_kube_watch_ops ops = {on_object, on_synced, on_trouble};

static void handle(void *data, struct fake_conn *c, const char *method, const char *path,
                   const char *head, const char *body)
{
    (void)data;
    (void)head;
    (void)body;
    assert_string_equal(method, "GET");
    assert_true(path_count < 64);
    (void)snprintf(paths[path_count++], sizeof(paths[0]), "%s", path);
    if (strstr(path, "watch=1")) {
        stream = c;
        streams++;
        return; /* the test says what comes */
    }
    unsigned at = list_at;
    if (lists[at + 1])
        list_at++;
    fake_answer(c, list_statuses[at] ? list_statuses[at] : 200, lists[at]);
}

static int setup(void **state)
{
    (void)state;
    world_open();
    fake = (struct fake){.handle = handle};
    fake_open(&fake, 0);
    kube = world_kube(&fake, 0);
    path_count = streams = told_count = synced_count = trouble_count = list_at = 0;
    told[0] = 0;
    stop_at = NULL;
    memset(lists, 0, sizeof(lists));
    memset(list_statuses, 0, sizeof(list_statuses));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_kube_watch_stop(watch);
    watch = NULL;
    sl_kube_destroy(kube);
    fake_close(&fake);
    world_close();
    return 0;
}

#define OBJ(name, uid, version)                                                                    \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"d\",\"uid\":\"" uid                      \
    "\",\"resourceVersion\":\"" version "\"}}"
#define LIST(version, more, items)                                                                 \
    "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"" version     \
    "\",\"continue\":\"" more "\"},\"items\":[" items "]}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define GONE                                                                                       \
    "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"too old resource "                  \
    "version\",\"code\":410}"

static void start(const char *path)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_kube_watch_start(kube, path, &ops, NULL, &watch, &err), 0);
    assert_int_equal(told_count, 0);
}

static void wait_told(const char *all)
{
    unsigned words = 1;
    for (const char *p = all; *p; p++)
        words += *p == ' ';
    world_until(&told_count, words, 10);
    for (int i = 0; i < 5; i++)
        world_step(1);
    assert_string_equal(told, all);
}

static void pages_and_events(void **state)
{
    (void)state;
    lists[0] = LIST("10", "p/2=", OBJ("a", "1", "5") "," OBJ("b", "2", "6"));
    lists[1] = LIST("10", "", OBJ("c", "3", "7"));
    start("/api/v1/pods?labelSelector=x");
    wait_told("+a +b +c S");
    assert_string_equal(paths[0], "/api/v1/pods?labelSelector=x&limit=500");
    assert_string_equal(paths[1], "/api/v1/pods?labelSelector=x&limit=500&continue=p%2F2%3D");
    world_until(&streams, 1, 0);
    assert_non_null(strstr(paths[2], "&watch=1&allowWatchBookmarks=true&resourceVersion=10&"));
    fake_stream(stream);
    fake_chunk(stream, EVENT("ADDED", OBJ("d", "4", "11")) EVENT("MODIFIED", OBJ("a", "1", "12")));
    /* half a line now, the rest later; CR LF and empty lines do no harm */
    fake_chunk(stream, "{\"type\":\"DELETED\",\"obj");
    wait_told("+a +b +c S +d ~a");
    fake_chunk(stream, "ect\":" OBJ("b", "2", "13") "}\r\n\n\n");
    fake_chunk(stream, EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"99\"}}"));
    fake_chunk(stream, EVENT("MODIFIED", OBJ("c", "3", "7")));  /* nothing new in it */
    fake_chunk(stream, EVENT("DELETED", OBJ("zz", "9", "98"))); /* never seen */
    fake_chunk(stream, EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"100\"}}"));
    wait_told("+a +b +c S +d ~a -b");
    fake_text(stream, "0\r\n\r\n"); /* its time is over: on from the bookmark, without a word */
    world_until(&streams, 2, 50);
    assert_non_null(strstr(paths[3], "&resourceVersion=100&"));
    assert_int_equal(trouble_count, 0);
}

/* Gone by HTTP status, and by an event: a new list, and only what differs is told. */
static void relist(void **state)
{
    (void)state;
    lists[0] = LIST("10", "", OBJ("a", "1", "5") "," OBJ("b", "2", "6") "," OBJ("c", "3", "7"));
    lists[1] = LIST("20", "", OBJ("a", "1", "5") "," OBJ("b", "2", "16") "," OBJ("c", "33", "17"));
    lists[2] = LIST("30", "", OBJ("b", "2", "16"));
    start("/api/v1/pods");
    world_until(&streams, 1, 0);
    fake_answer(stream, 410, GONE);
    wait_told("+a +b +c S ! ~b -c +c S");
    assert_int_equal(last_trouble.code, -ESTALE);
    assert_non_null(strstr(last_trouble.msg, "too old resource version"));
    world_until(&streams, 2, 50);
    assert_non_null(strstr(paths[path_count - 1], "resourceVersion=20"));
    fake_stream(stream);
    fake_chunk(stream, EVENT("ERROR", GONE));
    world_until(&synced_count, 3, 50);
    /* the order of what went is not promised */
    assert_true(strcmp(told, "+a +b +c S ! ~b -c +c S ! -a -c S") == 0 ||
                strcmp(told, "+a +b +c S ! ~b -c +c S ! -c -a S") == 0);
}

/* The list itself expires between two pages: next time in one piece. */
static void expired_pages(void **state)
{
    (void)state;
    lists[0] = LIST("10", "more", OBJ("a", "1", "5"));
    lists[1] = GONE;
    list_statuses[1] = 410;
    lists[2] = LIST("11", "", OBJ("a", "1", "5") "," OBJ("b", "2", "6"));
    start("/api/v1/pods");
    wait_told("+a ! +b S");
    assert_string_equal(paths[2], "/api/v1/pods");
}

static void cut_mid_line(void **state)
{
    (void)state;
    lists[0] = LIST("10", "", "");
    start("/api/v1/pods");
    world_until(&streams, 1, 0);
    fake_stream(stream);
    fake_chunk(stream,
               EVENT("ADDED", OBJ("a", "1", "11")) "{\"type\":\"ADDED\",\"object\":{\"metad");
    fake_cut(stream);
    wait_told("S +a !");
    world_until(&streams, 2, 50);
    assert_non_null(strstr(paths[path_count - 1], "resourceVersion=11"));
    fake_stream(stream);
    fake_chunk(stream, EVENT("ADDED", OBJ("b", "2", "12")));
    wait_told("S +a ! +b");
    /* the whole server goes and comes back: on with the same version */
    unsigned port = fake.port;
    fake_close(&fake);
    world_until(&trouble_count, 4, 50);
    fake_open(&fake, port);
    world_until(&streams, 3, 50);
    assert_non_null(strstr(paths[path_count - 1], "resourceVersion=12"));
    assert_int_equal(synced_count, 1);
}

static void refuse(const char *line, int code)
{
    unsigned before = trouble_count;
    fake_stream(stream);
    fake_chunk(stream, "%s", line);
    world_until(&trouble_count, before + 1, 10);
    assert_int_equal(last_trouble.code, code);
}

/* Lines that are no events; the third in a row makes it list again. */
static void nonsense(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "nonsense\n",
        "[]\n",
        "{\"type\":\"ADDED\"}\n",
        "{\"type\":\"NEW\",\"object\":" OBJ("a", "1", "5") "}\n",
        EVENT("ADDED", "{\"metadata\":{\"name\":\"a\"}}"),
        EVENT("ADDED", "{\"metadata\":{\"resourceVersion\":\"7\"}}"),
        "\x80\xff\n",
    };
    lists[0] = LIST("10", "", "");
    start("/api/v1/pods");
    for (unsigned i = 0; i < 7; i++) {
        world_until(&streams, i + 1, 200);
        refuse(lines[i], -EPROTO);
    }
    world_until(&streams, 8, 200);
    assert_int_equal(synced_count, 3);
}

static void huge_line(void **state)
{
    (void)state;
    lists[0] = LIST("10", "", "");
    start("/api/v1/pods");
    world_until(&streams, 1, 0);
    char *block = malloc(9 << 20);
    assert_non_null(block);
    memset(block, 'x', 9 << 20);
    fake_text(stream, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" EVENT(
                          "ADDED", OBJ("a", "1", "11")) "{\"type\":\"");
    fake_send(stream, block, 9 << 20);
    wait_told("S +a !"); /* what was complete before it is told */
    assert_int_equal(last_trouble.code, -EMSGSIZE);
    free(block);
    world_until(&streams, 2, 50);
    assert_non_null(strstr(paths[path_count - 1], "resourceVersion=11"));
}

/* A server that takes the request and says nothing. */
static void silent(void **state)
{
    (void)state;
    lists[0] = LIST("10", "", "");
    start("/api/v1/pods");
    world_until(&streams, 1, 0);
    world_jump(31 * SL_NS_PER_S);
    wait_told("S !");
    assert_int_equal(last_trouble.code, -ETIMEDOUT);
    world_until(&streams, 2, 50);
}

static void bad_lists(void **state)
{
    (void)state;
    lists[0] = "{\"kind\":\"Status\",\"message\":\"you may not list pods\",\"code\":403}";
    list_statuses[0] = 403;
    lists[1] = "{\"items\":[]}";
    lists[2] = "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":7}";
    lists[3] = "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[7,{},{\"metadata\":3}]}";
    start("/api/v1/pods");
    world_until(&trouble_count, 1, 10);
    assert_int_equal(last_trouble.code, -EPERM);
    assert_non_null(strstr(last_trouble.msg, "you may not list pods"));
    world_until(&synced_count, 1, 50);
    assert_string_equal(told, "! ! ! S");
}

/* The waits grow: with a dead server there are few attempts in a long time. */
static void back_off(void **state)
{
    (void)state;
    lists[0] = "{}";
    list_statuses[0] = 500;
    start("/api/v1/pods");
    for (int i = 0; i < 3000; i++) { /* five minutes */
        world_jump(100 * SL_NS_PER_MS);
        world_step(0);
    }
    assert_true(path_count >= 8 && path_count <= 30);
}

static void stop_inside(void **state)
{
    (void)state;
    static const char *const where[] = {"+b", "S", "~a", "-a", "!"};
    for (size_t i = 0; i < 5; i++) {
        told[0] = 0;
        told_count = streams = path_count = list_at = 0;
        lists[0] = LIST("10", "", OBJ("a", "1", "5") "," OBJ("b", "2", "6"));
        stop_at = where[i];
        start("/api/v1/pods");
        if (i >= 2) {
            world_until(&streams, 1, 0);
            fake_stream(stream);
            fake_chunk(stream,
                       EVENT("MODIFIED", OBJ("a", "1", "12")) EVENT("DELETED", OBJ("a", "1", "13"))
                           EVENT("ERROR", GONE) EVENT("ADDED", OBJ("q", "9", "14")));
        }
        for (int k = 0; k < 200 && watch; k++)
            world_step(2);
        assert_null(watch);
        const char *last = strrchr(told, ' ');
        assert_string_equal(last ? last + 1 : told, where[i]);
        for (int k = 0; k < 5; k++)
            world_step(1);
        last = strrchr(told, ' ');
        assert_string_equal(last ? last + 1 : told, where[i]); /* and nothing after it */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pages_and_events, setup, teardown),
        cmocka_unit_test_setup_teardown(relist, setup, teardown),
        cmocka_unit_test_setup_teardown(expired_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_mid_line, setup, teardown),
        cmocka_unit_test_setup_teardown(nonsense, setup, teardown),
        cmocka_unit_test_setup_teardown(huge_line, setup, teardown),
        cmocka_unit_test_setup_teardown(silent, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(back_off, setup, teardown),
        cmocka_unit_test_setup_teardown(stop_inside, setup, teardown),
    };
    return cmocka_run_group_tests_name("http_watch", tests, NULL, NULL);
}
