/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-sim-ctl: look into a running simulation, and make things go wrong in it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/nvml.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "sim/engine.h"
#include "sim/nvml_shared.h"
#include "sim/sim_ctl.h"
#include "sim/tree.h"

static const char usage[] =
    "usage: sluice-sim-ctl COMMAND\n"
    "\n"
    "  show                   cards, their processes and memory\n"
    "  list                   the cards and MIG devices this process sees, as \"nvidia-smi -L\"\n"
    "  make-root DIR [SPEC]   make a driver root: libraries, nodes, programs, state\n"
    "  mig CARD off|PROFILE…  turn MIG off, or make exactly these instances (1g.18gb 3g.71gb@4)\n"
    "  xid CARD NUMBER        report an XID error on a card\n"
    "  ecc CARD NUMBER [corrected]  report NUMBER memory errors\n"
    "  lost CARD              the card falls off the bus\n"
    "  back CARD              it is back\n"
    "  slow CARD FACTOR       kernels take FACTOR times as long (1: as they should)\n"
    "  groups CARD WHAT       controls on channel groups: refused, refused-slice, "
    "refused-disable,\n"
    "                         inert, inert-slice (accepted, without effect), normal\n"
    "  foreign CARD AMOUNT    memory taken by somebody outside (10Gi; none: 0)\n"
    "\n"
    "CARD is an index or a UUID. SLUICE_SIM and SLUICE_SIM_STATE name the simulation, as they do\n"
    "for the simulated libraries.\n";

int sl_sim_ctl_bad(const char *what, const char *text)
{
    (void)fprintf(stderr, "sluice-sim-ctl: %s \"%s\"; try \"sluice-sim-ctl help\"\n", what, text);
    return 2;
}

static bool parse_number(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return false;
    *ret = v;
    return true;
}

static bool parse_card(const struct sl_sim_state *st, const char *text, uint32_t *ret)
{
    uint64_t n;
    if (parse_number(text, &n)) {
        *ret = (uint32_t)n;
        return n < st->card_count;
    }
    for (uint32_t i = 0; i < st->card_count; i++)
        if (strcmp(text, st->cards[i].desc.uuid_text) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

/* ---- show ---- */

static void show_mig(const struct sl_sim_card *c)
{
    struct sl_sim_ctl_mig m;
    for (size_t at = 0; sl_sim_ctl_next_mig(c, &at, &m);)
        (void)printf("    mig %-12s gi %u ci %u  %s\n", m.name, m.gi_id, m.ci_id, m.uuid);
}

/* The compute groups of a process on a card. */
static void show_groups(const struct sl_sim_state *st, uint32_t card, uint32_t proc)
{
    for (uint32_t i = 0; i < st->queue_high; i++) {
        const struct sl_sim_queue *q = &st->queues[i];
        if (!q->used || q->proc != proc || q->card != card || !q->channels)
            continue;
        uint64_t ns = q->slice_ns ? q->slice_ns : st->slice_ns;
        (void)printf("        group %u  slice %" PRIu64 " us  channels %d  disabled %d  ran %.3f s",
                     i, (uint64_t)(ns / SL_SIM_SLICE_UNIT_NS), __builtin_popcount(q->channels),
                     __builtin_popcount(q->channels & q->channels_off),
                     (double)q->running_ns / 1e9);
        if (q->slice_us && q->slice_us * SL_SIM_SLICE_UNIT_NS != ns)
            (void)printf("  (set to %u us, without effect)", q->slice_us);
        (void)printf("\n");
    }
}

static int show(struct sl_sim_state *st)
{
    sl_sim_lock(st);
    sl_sim_reap(st, true);
    uint64_t now = sl_sim_now_ns();
    sl_sim_advance(st, now);
    (void)printf("state %s\nspec %s\n", sl_sim_path(), st->spec);
    for (uint32_t i = 0; i < st->card_count; i++) {
        const struct sl_sim_card *c = &st->cards[i];
        char used[32], total[32];
        uint64_t second = 10 * SL_SIM_BUCKET_NS, from = now > second ? now - second : 0;
        uint64_t busy = sl_sim_usage_between(&c->usage, from, now);
        (void)printf("%u %s %s  %s of %s  busy %" PRIu64 " %%%s%s", i, c->desc.uuid_text,
                     c->desc.name, sl_format_bytes(sl_sim_used_bytes(st, i), used, sizeof(used)),
                     sl_format_bytes(c->desc.memory_total_bytes, total, sizeof(total)),
                     (uint64_t)(busy * 100 / (second + SL_SIM_BUCKET_NS)), c->lost ? "  lost" : "",
                     c->mig.enabled ? "  mig" : "");
        if (c->slow_permille && c->slow_permille != 1000)
            (void)printf("  slow x%u.%03u", c->slow_permille / 1000, c->slow_permille % 1000);
        if (c->nvml_private[SL_SIM_NVML_TIMESLICE])
            (void)printf("  timeslice %" PRIu64, c->nvml_private[SL_SIM_NVML_TIMESLICE]);
        (void)printf("\n");
        show_mig(c);
        for (uint32_t k = 0; k < st->proc_high; k++) {
            const struct sl_sim_proc *p = &st->procs[k];
            if (!p->used || (p->card[i].contexts == 0 && p->card[i].memory_bytes == 0))
                continue;
            (void)printf("    pid %d %s  %s  contexts %u  busy %.3f s\n",
                         (int)sl_sim_proc_pid(st, k), p->name,
                         sl_format_bytes(sl_sim_proc_bytes(st, k, i), used, sizeof(used)),
                         p->card[i].contexts, (double)p->card[i].usage.busy_ns / 1e9);
            show_groups(st, i, k);
        }
    }
    sl_sim_unlock(st);
    return 0;
}

/* ---- faults: each runs under the lock ---- */

static bool do_xid(struct sl_sim_state *st, uint32_t card, const char *arg, const char *extra)
{
    uint64_t xid;
    (void)extra;
    if (!arg || !parse_number(arg, &xid))
        return false;
    sl_sim_event_add(st, card, nvmlEventTypeXidCriticalError, xid, SL_SIM_NONE, SL_SIM_NONE);
    return true;
}

static bool do_ecc(struct sl_sim_state *st, uint32_t card, const char *arg, const char *extra)
{
    uint64_t n;
    bool corrected = extra && strcmp(extra, "corrected") == 0;
    if (!arg || !parse_number(arg, &n) || (extra && !corrected))
        return false;
    st->cards[card].nvml_private[SL_SIM_NVML_ECC + (corrected ? 0 : 1)] += n;
    sl_sim_event_add(st, card,
                     corrected ? nvmlEventTypeSingleBitEccError : nvmlEventTypeDoubleBitEccError, n,
                     SL_SIM_NONE, SL_SIM_NONE);
    return true;
}

static bool do_lost(struct sl_sim_state *st, uint32_t card, const char *arg, const char *extra)
{
    (void)arg, (void)extra;
    st->cards[card].lost = 1;
    /* What a driver says when a card falls off the bus. */
    sl_sim_event_add(st, card, nvmlEventTypeXidCriticalError, 79, SL_SIM_NONE, SL_SIM_NONE);
    return true;
}

static bool do_back(struct sl_sim_state *st, uint32_t card, const char *arg, const char *extra)
{
    (void)arg, (void)extra;
    st->cards[card].lost = 0;
    st->cards[card].lost_at_ns = 0;
    return true;
}

static bool do_slow(struct sl_sim_state *st, uint32_t card, const char *arg, const char *extra)
{
    char *end;
    double factor = arg ? strtod(arg, &end) : 0;
    (void)extra;
    if (!arg || *end != '\0' || !(factor >= 0.001 && factor <= 1e6))
        return false;
    st->cards[card].slow_permille = (uint32_t)(factor * 1000 + 0.5);
    return true;
}

static bool do_groups(struct sl_sim_state *st, uint32_t card, const char *arg, const char *extra)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } known[] = {{"normal", 0},
                 {"refused", SL_SIM_GROUPS_REFUSE},
                 {"refused-slice", SL_SIM_GROUPS_REFUSE_SLICE},
                 {"refused-disable", SL_SIM_GROUPS_REFUSE_DISABLE},
                 {"inert", SL_SIM_GROUPS_INERT},
                 {"inert-slice", SL_SIM_GROUPS_INERT_SLICE}};
    (void)extra;
    for (size_t i = 0; arg && i < SL_ARRAY_LEN(known); i++)
        if (strcmp(arg, known[i].name) == 0) {
            st->cards[card].groups_fault = known[i].bits;
            return true;
        }
    return false;
}

static bool do_foreign(struct sl_sim_state *st, uint32_t card, const char *arg, const char *extra)
{
    struct sl_memory_amount amount = {0};
    (void)extra;
    if (!arg || (strcmp(arg, "0") != 0 && sl_parse_memory(arg, &amount, NULL) < 0) ||
        amount.percent)
        return false;
    st->cards[card].foreign_bytes = amount.bytes;
    return true;
}

static const struct {
    const char *name;
    bool (*run)(struct sl_sim_state *st, uint32_t card, const char *arg, const char *extra);
    int args; /* after CARD, at most */
} commands[] = {
    {"xid", do_xid, 1},       {"ecc", do_ecc, 2},   {"lost", do_lost, 0},
    {"back", do_back, 0},     {"slow", do_slow, 1}, {"foreign", do_foreign, 1},
    {"groups", do_groups, 1},
};

static int fault(struct sl_sim_state *st, int argc, char **argv, size_t i)
{
    uint32_t card;
    if (argc < 3 || argc > 3 + commands[i].args)
        return sl_sim_ctl_bad("wrong number of words after", argv[1]);
    if (!parse_card(st, argv[2], &card))
        return sl_sim_ctl_bad("there is no card", argv[2]);
    sl_sim_lock(st);
    sl_sim_advance(st, sl_sim_now_ns());
    bool ok = commands[i].run(st, card, argc > 3 ? argv[3] : NULL, argc > 4 ? argv[4] : NULL);
    sl_sim_unlock(st);
    if (!ok)
        return sl_sim_ctl_bad("cannot use", argc > 3 ? argv[3] : "nothing");
    sl_sim_nvml_wake(st);
    return 0;
}

static int run(struct sl_sim_state *st, int argc, char **argv)
{
    uint32_t card;
    if (strcmp(argv[1], "show") == 0 || strcmp(argv[1], "list") == 0) {
        if (argc > 2)
            return sl_sim_ctl_bad("too much", argv[2]);
        return argv[1][0] == 's' ? show(st) : sl_sim_ctl_list(st);
    }
    if (strcmp(argv[1], "mig") == 0) {
        if (argc < 4)
            return sl_sim_ctl_bad("wrong number of words after", argv[1]);
        return parse_card(st, argv[2], &card) ? sl_sim_ctl_mig(st, card, argc - 3, argv + 3)
                                              : sl_sim_ctl_bad("there is no card", argv[2]);
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return fault(st, argc, argv, i);
    return sl_sim_ctl_bad("there is no command", argv[1]);
}

/* "compute-policy -i CARD --set-timeslice N": kept and shown, nothing runs differently. */
static int smi_policy(struct sl_sim_state *st, char **argv)
{
    uint32_t card;
    char *end;
    unsigned long n = strtoul(argv[5], &end, 10);
    if (*end || n > 3)
        return sl_sim_ctl_bad("cannot use", argv[5]);
    if (!parse_card(st, argv[3], &card))
        return sl_sim_ctl_bad("there is no card", argv[3]);
    sl_sim_lock(st);
    st->cards[card].nvml_private[SL_SIM_NVML_TIMESLICE] = n;
    sl_sim_unlock(st);
    (void)printf("Successfully set timeslice to %lu for simulated GPU %u.\n", n, card);
    return 0;
}

/* Under the name nvidia-smi it is what a container calls to see whether it has a GPU. */
static int smi(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_sim_state *st;
    bool policy = argc == 6 && strcmp(argv[1], "compute-policy") == 0 &&
                  strcmp(argv[2], "-i") == 0 && strcmp(argv[4], "--set-timeslice") == 0;
    if (!policy &&
        (argc != 2 || (strcmp(argv[1], "-L") != 0 && strcmp(argv[1], "--list-gpus") != 0)))
        return sl_sim_smi(argc, argv);
    if (!sl_sim_sees_node("nvidiactl") || sl_sim_open(&st, &err) < 0) {
        (void)printf("NVIDIA-SMI has failed: no simulated driver here%s%s\n", err.code ? ": " : "",
                     err.msg);
        return 9;
    }
    return policy ? smi_policy(st, argv) : sl_sim_ctl_list(st);
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    if (strcmp(name ? name + 1 : argv[0], "nvidia-smi") == 0)
        return smi(argc, argv);
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        (void)fputs(usage, argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    struct sl_err err = SL_ERR_INIT;
    struct sl_sim_state *st;
    if (strcmp(argv[1], "make-root") == 0)
        return sl_sim_ctl_make_root(argc - 2, argv + 2);
    if (sl_sim_open(&st, &err) < 0) {
        (void)fprintf(stderr, "sluice-sim-ctl: %s\n", err.msg);
        return 1;
    }
    return run(st, argc, argv);
}
