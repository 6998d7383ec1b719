/* SPDX-License-Identifier: Apache-2.0 */
/* The table of verbs: add a row here and a cmd_<verb>.c, and help and completion follow. */
#include "cli/cli.h"

#include <stddef.h>

#define OPTION_SIM                                                                                 \
    {                                                                                              \
        "sim", "CARDS",                                                                            \
            "use simulated GPUs: h200, h200x4, a100-80gx2,l4,\nor the path of a file that "        \
            "describes them",                                                                      \
            "t4 l4 a10g a100-40g a100-80g h100-80g h200 b200 h200x2 h200x4"                        \
    }
#define OPTION_MEMORY                                                                              \
    {                                                                                              \
        "memory", "AMOUNT", "most GPU memory, on each GPU: 10Gi, 512Mi, or 25%",                   \
            "1Gi 2Gi 4Gi 8Gi 10Gi 16Gi 25% 50%"                                                    \
    }
#define OPTION_CORES                                                                               \
    {                                                                                              \
        "cores", "SHARE",                                                                          \
            "share of GPU time in percent: 30 (exactly that), or\n30:100 (at least 30, and what "  \
            "is idle)",                                                                            \
            "10 25 30 50 75 30:100 50:100"                                                         \
    }
#define OPTION_PRIORITY                                                                            \
    {                                                                                              \
        "priority", "LEVEL", "high, normal or low: high goes first, low takes what is left",       \
            "high normal low"                                                                      \
    }
#define OPTION_JSON                                                                                \
    {                                                                                              \
        "json", NULL, "print JSON", NULL                                                           \
    }
#define OPTION_END                                                                                 \
    {                                                                                              \
        NULL, NULL, NULL, NULL                                                                     \
    }

const struct sl_cli_option sl_cli_global_options[] = {
    {"dir", "DIR", "where the arbiter lives (default: see sluice(1))", "@dir"},
    {"help", NULL, "show this help", NULL},
    {"version", NULL, "show the version", NULL},
    OPTION_END,
};

static const struct sl_cli_option run_options[] = {
    {"gpu", "GPU[,GPU...]", "which GPUs, by index or UUID (default: the first\nthat has room, of those in CUDA_VISIBLE_DEVICES)", "@gpu"},
    OPTION_MEMORY,
    OPTION_CORES,
    OPTION_PRIORITY,
    {"compute", "HOW",
     "how GPU time is shared: auto (default), slices (by the\nhardware) or turns (one tenant at a "
     "time)",
     "auto slices turns"},
    {"name", "NAME", "what to call it in `sluice status` and `sluice set`", ""},
    OPTION_SIM,
    {"libsluice", "FILE", "use this libsluice.so (default: the one installed with\nthis program)",
     "@file"},
    OPTION_END,
};

static const struct sl_cli_option status_options[] = {
    OPTION_JSON,
    {"watch", NULL, "show it again every second until Ctrl-C", NULL},
    OPTION_SIM,
    OPTION_END,
};

static const struct sl_cli_option set_options[] = {
    OPTION_MEMORY, OPTION_CORES, OPTION_PRIORITY, OPTION_SIM, OPTION_END,
};

static const struct sl_cli_option doctor_options[] = {
    OPTION_JSON,
    OPTION_SIM,
    {"libsluice", "FILE", "check this libsluice.so", "@file"},
    OPTION_END,
};

static const struct sl_cli_option simulate_options[] = {
    {"nodes", "FILE", "the cluster: CSV with cpu_milli, memory_mib, gpu, model", "@file"},
    {"mix", "NODES",
     "the cluster, written out: 100xH200:8:192000:2097152,...\n(COUNTxMODEL:GPUS:CPU_MILLI:"
     "MEMORY_MIB[:GPU_MEMORY_MIB])",
     ""},
    {"generate", "COUNT", "the cluster: that many made-up nodes (default: 1213)", "100 1213 5000"},
    {"pods", "FILE[,FILE...]",
     "what arrives: CSV with cpu_milli, memory_mib, num_gpu,\ngpu_milli (default: made-up pods)",
     "@file"},
    {"policy", "POLICY[,POLICY...]",
     "random, first-fit, dot-product, clustering, packing,\nbest-fit, binpack, spread, fgd, "
     "sluice\n"
     "(default: best-fit,fgd,sluice)",
     "random first-fit dot-product clustering packing best-fit binpack spread fgd sluice"},
    {"seeds", "SEEDS", "orders to try: 42-51 (default), or 1,2,3", "42-51"},
    {"until", "PERCENT", "stop when so much of capacity has arrived (default: 130)", "100 130"},
    {"at", "PERCENT[,...]", "print tables for these (default: 90,100)", "90,95,100,130"},
    {"churn", NULL, "pods also leave; measure the steady state", NULL},
    {"load", "PERCENT", "with --churn: demand running at once, of capacity\n(default: 100)",
     "90 95 100 105"},
    {"turnovers", "COUNT", "with --churn: mean lifetimes to measure over (default: 2)", "2 5"},
    {"lifetimes", "HOW", "with --churn: exponential (default), or as in the trace",
     "exponential trace"},
    {"strategy", "HOW",
     "what if: fractional (default), exclusive, mig, or\nslots:N (N equal slots a card)",
     "fractional exclusive mig slots:4"},
    {"gpu-memory", "HOW",
     "what if shares also take GPU memory: none (default),\nsame as compute, or independent",
     "none same independent"},
    {"learn", NULL, "policies learn what arrives instead of being told", NULL},
    {"tune", "NAME=VALUE[,...]", "change constants of the sluice policy", ""},
    {"svg", "FILE", "draw the curves", "@file"},
    OPTION_JSON,
    OPTION_END,
};

static const struct sl_cli_option config_options[] = {
    OPTION_JSON,
    OPTION_SIM,
    OPTION_END,
};

static const struct sl_cli_option arbiter_options[] = {
    OPTION_SIM,
    {"idle-exit", "SECONDS", "leave after this long without tenants; 0: never", ""},
    {"ready-fd", "FD", "say here when it listens, or why not", ""},
    OPTION_END,
};

static const struct sl_cli_option spin_options[] = {OPTION_END};

static const struct sl_cli_option words_options[] = {
    {"tenants", NULL, "names of the tenants", NULL},
    OPTION_SIM,
    OPTION_END,
};

const struct sl_cli_verb sl_cli_verbs[] = {
    {.name = "run",
     .synopsis = "[--] COMMAND [ARGUMENT...]",
     .summary = "give a command a slice of a GPU",
     .details = "COMMAND and everything it starts is one tenant: together they get no more GPU\n"
                "memory and time than asked for here. No root and no daemon is needed.\n"
                "Ends with COMMAND's exit code; 125: sluice itself failed, 126: COMMAND cannot be\n"
                "executed, 127: COMMAND was not found.",
     .options = run_options,
     .flags = SL_VERB_STOP,
     .usage_exit = SL_EXIT_RUN_OURS,
     .run = sl_cmd_run},
    {.name = "status",
     .synopsis = "",
     .summary = "show GPUs, tenants, what they asked for and what they get",
     .options = status_options,
     .usage_exit = SL_EXIT_USAGE,
     .run = sl_cmd_status},
    {.name = "set",
     .synopsis = "NAME",
     .summary = "change what a running tenant may use",
     .details = "More memory or time counts at once. Less memory than the tenant uses now takes\n"
                "nothing away from it, but it gets no more until it is below the new limit.",
     .options = set_options,
     .usage_exit = SL_EXIT_USAGE,
     .run = sl_cmd_set},
    {.name = "doctor",
     .synopsis = "",
     .summary = "check what works on this machine, and say what to do about the rest",
     .details = "Ends with 1 when something keeps `sluice run` from working.",
     .options = doctor_options,
     .usage_exit = SL_EXIT_USAGE,
     .run = sl_cmd_doctor},
    {.name = "simulate",
     .synopsis = "[PODS-FILE...]",
     .summary = "try placement policies on a cluster and its pods",
     .details =
         "Pods arrive in random order until their GPU demand reaches --until percent of the\n"
         "cluster; a table shows how much GPU each policy leaves unallocated. Files are in\n"
         "the format of the public openb trace, with any further columns; without files a\n"
         "cluster and pods with similar proportions are made up. With --json one object a\n"
         "run is printed, one a line.",
     .options = simulate_options,
     .usage_exit = SL_EXIT_USAGE,
     .run = sl_cmd_simulate},
    {.name = "config",
     .synopsis = "check FILE",
     .summary = "check a node's configuration file",
     .details =
         "Prints the effective configuration: FILE (\"-\": standard input) with the defaults,\n"
         "under the environment variables the agent reads; and what this node would advertise\n"
         "with it, as comments. A bad file is met with its line and column, and exit code 1.",
     .options = config_options,
     .usage_exit = SL_EXIT_USAGE,
     .run = sl_cmd_config},
    {.name = "arbiter",
     .synopsis = "",
     .summary = "serve one directory's tenants; `sluice run` starts it by itself",
     .options = arbiter_options,
     .flags = SL_VERB_HIDDEN,
     .usage_exit = SL_EXIT_USAGE,
     .run = sl_cmd_arbiter},
    {.name = "spin",
     .synopsis = "FD INDEX",
     .summary = "keep a GPU busy; `sluice doctor` starts it by itself",
     .options = spin_options,
     .flags = SL_VERB_HIDDEN,
     .usage_exit = SL_EXIT_USAGE,
     .run = sl_cmd_spin},
    {.name = "words",
     .synopsis = "[VERB [OPTION]]",
     .summary = "list what may come next, for shell completion",
     .options = words_options,
     .flags = SL_VERB_HIDDEN,
     .usage_exit = SL_EXIT_USAGE,
     .run = sl_cmd_words},
    {.name = NULL},
};
