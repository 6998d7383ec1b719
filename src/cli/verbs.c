/* SPDX-License-Identifier: Apache-2.0 */
/* The table of verbs: add a row here and a cmd_<verb>.c, and help and completion follow. */
#include "cli/cli.h"

#include <stddef.h>

#define OPTION_SIM                                                                                 \
    {"sim", "CARDS",                                                                               \
     "use simulated GPUs: h200, h200x4, a100-80gx2,l4,\nor the path of a file that "               \
     "describes them",                                                                             \
     "t4 l4 a10g a100-40g a100-80g h100-80g h200 b200 h200x2 h200x4"}
#define OPTION_MEMORY                                                                              \
    {"memory", "AMOUNT", "GPU memory limit on each GPU: 10Gi, 512Mi, or 25%",                      \
     "1Gi 2Gi 4Gi 8Gi 10Gi 16Gi 25% 50%"}
#define OPTION_CORES                                                                               \
    {"cores", "SHARE",                                                                             \
     "share of GPU time in percent: 30 (at least and at most),\n"                                  \
     "or 30:100 (at least 30, up to 100 while others are idle)",                                   \
     "10 25 30 50 75 30:100 50:100"}
#define OPTION_PRIORITY                                                                            \
    {"priority", "LEVEL", "high, normal or low: high runs first, low runs last", "high normal low"}
#define OPTION_JSON {"json", NULL, "print JSON", NULL}
#define OPTION_END  {NULL, NULL, NULL, NULL}

const struct sl_cli_option sl_cli_global_options[] = {
    {"dir", "DIR", "directory of the arbiter (default: see sluice(1))", "@dir"},
    {"help", NULL, "show this help", NULL},
    {"version", NULL, "show the version", NULL},
    OPTION_END,
};

/* What a tenant may use, for a command and for a lease. */
#define OPTIONS_SHARE                                                                              \
    {"gpu", "GPU[,GPU...]",                                                                        \
     "which GPUs, by index or UUID; auto (default): the one\nthat fits best, of those in "         \
     "CUDA_VISIBLE_DEVICES",                                                                       \
     "auto 0 1 2 3 4 5 6 7"},                                                                      \
        {"gpus", "COUNT",                                                                          \
         "with auto: so many different GPUs, each with the memory\nand cores asked for "           \
         "(default: 1)",                                                                           \
         "1 2 4 8"},                                                                               \
        OPTION_MEMORY, OPTION_CORES, OPTION_PRIORITY,                                              \
        {"compute", "HOW",                                                                         \
         "how GPU time is shared: auto (default), slices (by the\nhardware) or turns (one "        \
         "tenant at a time)",                                                                      \
         "auto slices turns"}
#define OPTION_LIBSLUICE                                                                           \
    {"libsluice", "FILE", "use this libsluice.so (default: the one installed with\nthis program)", \
     "@file"}

static const struct sl_cli_option run_options[] = {
    OPTIONS_SHARE,
    {"wait", "[=TIME]",
     "where there is no room now, wait in line: until there is,\nor at most TIME (30s, 10m, 2h)",
     NULL},
    {"name", "NAME", "name of the tenant in `sluice status` and `sluice set`", ""},
    OPTION_SIM,
    OPTION_LIBSLUICE,
    OPTION_END,
};

static const struct sl_cli_option lease_options[] = {
    OPTIONS_SHARE,
    {"cdi-dir", "FOLDER",
     "folder for the CDI spec (default: /var/run/cdi for root,\nelse $XDG_RUNTIME_DIR/cdi)",
     "@dir"},
    {"json", NULL, "list: print JSON", NULL},
    {"force", NULL, "delete: also while processes use the lease", NULL},
    OPTION_SIM,
    OPTION_LIBSLUICE,
    OPTION_END,
};

static const struct sl_cli_option status_options[] = {
    {"wide", NULL, "show all columns, and long names whole", NULL},
    OPTION_JSON,
    {"watch", NULL, "repeat every second until Ctrl-C", NULL},
    OPTION_SIM,
    OPTION_END,
};

static const struct sl_cli_option history_options[] = {
    {"last", "N", "only the last N (also: -n N)", "1 10 20 50"},
    {"since", "TIME",
     "only those that ended since then: 2h (two hours ago),\n2026-11-17, or '2026-11-17 14:30'",
     "1h 12h 1d 7d"},
    {"wide", NULL, "show all columns, and long names whole", NULL},
    OPTION_JSON,
    OPTION_SIM,
    OPTION_END,
};

static const struct sl_cli_option top_options[] = {
    {"once", NULL, "print one page and end", NULL},
    OPTION_SIM,
    OPTION_END,
};

static const struct sl_cli_option web_options[] = {
    {"port", "PORT", "listen at this port of 127.0.0.1 (default: a free one)", "8090"},
    OPTION_SIM,
    OPTION_END,
};

static const struct sl_cli_option set_options[] = {
    OPTION_MEMORY, OPTION_CORES, OPTION_PRIORITY, OPTION_SIM, OPTION_END,
};

static const struct sl_cli_option pause_options[] = {OPTION_SIM, OPTION_END};

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
    {"until", "PERCENT", "stop when demand reaches this percentage (default: 130)", "100 130"},
    {"at", "PERCENT[,...]", "percentages of demand to print tables for (default: 90,100)",
     "90,95,100,130"},
    {"churn", NULL, "pods also leave; measure the steady state", NULL},
    {"load", "PERCENT",
     "with --churn: demand that runs at the same time, in\npercent of capacity (default: 100)",
     "90 95 100 105"},
    {"turnovers", "COUNT", "with --churn: measure for this many mean lifetimes\n(default: 2)",
     "2 5"},
    {"lifetimes", "HOW", "with --churn: exponential (default), or as in the trace",
     "exponential trace"},
    {"strategy", "HOW",
     "how GPUs are shared: fractional (default), exclusive,\n"
     "mig, or slots:N (N equal slots on each card)",
     "fractional exclusive mig slots:4"},
    {"gpu-memory", "HOW",
     "GPU memory that shares take: none (default), same (as\n"
     "compute), or independent",
     "none same independent"},
    {"learn", NULL, "policies learn what arrives instead of being told", NULL},
    {"tune", "NAME=VALUE[,...]", "change constants of the sluice policy", ""},
    {"svg", "FILE", "draw the curves", "@file"},
    {"live", NULL,
     "advise about the real cluster instead: which moves of\npods would free whole cards (nothing "
     "is moved)",
     NULL},
    {"moves", "COUNT", "with --live: at most this many moves (default: any)", "1 5 10"},
    {"context", "NAME", "with --live: the context of the kubeconfig", ""},
    {"kubeconfig", "FILE", "with --live: the kubeconfig (default: as kubectl's)", "@file"},
    OPTION_JSON,
    OPTION_END,
};

static const struct sl_cli_option config_options[] = {
    OPTION_JSON,
    OPTION_SIM,
    OPTION_END,
};

static const struct sl_cli_option cluster_options[] = {
    {"namespace", "NAME", "in this namespace (default: the context's)", ""},
    {"context", "NAME", "the context of the kubeconfig", ""},
    {"kubeconfig", "FILE", "the kubeconfig (default: as kubectl's)", "@file"},
    OPTION_JSON,
    OPTION_END,
};

static const struct sl_cli_option arbiter_options[] = {
    {"system", NULL, "serve all users of a group; needs root", NULL},
    {"config", "FILE", "with --system: who may have how much\n(default: /etc/sluice/arbiter.yaml)",
     "@file"},
    OPTION_SIM,
    {"idle-exit", "SECONDS", "end after this many seconds without tenants; 0: never", ""},
    {"ready-fd", "FD", "descriptor for the report that the arbiter listens", ""},
    OPTION_END,
};

static const struct sl_cli_option words_options[] = {
    {"tenants", NULL, "names of the tenants", NULL},
    {"leases", NULL, "names of the leases", NULL},
    {"ended", NULL, "names of ended tenants", NULL},
    OPTION_SIM,
    OPTION_END,
};

const struct sl_cli_verb sl_cli_top = {.name = "", .synopsis = "", .flags = SL_VERB_STOP};

const struct sl_cli_verb sl_cli_verbs[] = {
    {.name = "run",
     .synopsis = "[--] COMMAND [ARGUMENT...]",
     .summary = "give a command a slice of a GPU",
     .details =
         "COMMAND and every process that it starts are one tenant: together they get no\n"
         "more GPU memory and time than the options say. It needs neither root nor a daemon.\n"
         "The exit code is COMMAND's; 124: no room came in the time of --wait, 125: sluice\n"
         "itself failed, 126: COMMAND cannot be executed, 127: COMMAND was not found.",
     .options = run_options,
     .flags = SL_VERB_STOP,
     .usage_exit = SL_EXIT_RUN_OURS,
     .run = sl_cmd_run},
    {.name = "status",
     .synopsis = "[NAME]",
     .summary = "show GPUs and tenants: what each tenant asked for and got",
     .details =
         "The table fits 80 columns; ~ ends a name that was cut. With the NAME of a tenant: this\n"
         "tenant in detail, with its processes.",
     .options = status_options,
     .run = sl_cmd_status},
    {.name = "history",
     .synopsis = "[NAME]",
     .summary = "show ended tenants: what each asked for, got and needed",
     .details =
         "The latest is the last line. MEMORY is the highest use, and what was asked for. CORES\n"
         "is the GPU time got on average while the tenant had work, and what was asked for. Below\n"
         "the table: who asked for far more than was used. With a NAME: the tenants of this name.",
     .options = history_options,
     .run = sl_cmd_history},
    {.name = "top",
     .summary = "watch GPUs and tenants live, and change or end tenants",
     .details =
         "Keys: up and down select a tenant, Enter shows its processes, c m p change its cores,\n"
         "memory and priority, z pauses it, x ends it, s sorts, / filters, ? explains, q leaves.",
     .options = top_options,
     .run = sl_cmd_top},
    {.name = "web",
     .summary = "show GPUs and tenants on a page for a browser of this machine",
     .details =
         "Prints an address to open. Other machines cannot reach it; other users of this machine\n"
         "need the token in the address. From elsewhere: `ssh -L 8090:127.0.0.1:8090 HOST` with\n"
         "`--port 8090`. The page shows what `sluice status` shows, who waits, and where a "
         "request\n"
         "would go. It changes nothing.",
     .options = web_options,
     .run = sl_cmd_web},
    {.name = "set",
     .synopsis = "NAME",
     .summary = "change what a running tenant may use",
     .details = "A higher limit counts at once. A memory limit below what the tenant uses now\n"
                "takes nothing away, but the tenant gets no more memory until it uses less.",
     .options = set_options,
     .run = sl_cmd_set},
    {.name = "pause",
     .synopsis = "NAME",
     .summary = "take a tenant off the GPU; it keeps its memory",
     .details = "The tenant stops in the middle of its work, and others get its share of GPU time\n"
                "until `sluice resume NAME`. It stays paused when the arbiter restarts.",
     .options = pause_options,
     .run = sl_cmd_pause},
    {.name = "resume",
     .synopsis = "NAME",
     .summary = "let a paused tenant go on where it was",
     .options = pause_options,
     .run = sl_cmd_resume},
    {.name = "forget",
     .synopsis = "NAME",
     .summary = "end what was promised to a pod that is gone",
     .details =
         "For a tenant of a Kubernetes node that no process uses and whose agent does not end it.\n"
         "The agent ends promises by itself when their pod is gone: wait ten seconds first.",
     .options = pause_options,
     .run = sl_cmd_forget},
    {.name = "lease",
     .synopsis = "create NAME | list | delete NAME",
     .summary = "make limits for containers: docker, podman, nerdctl",
     .details =
         "`sluice lease create NAME --memory 10Gi --cores 30` makes a lease. All containers that\n"
         "are started with `--device sluice.io/lease=NAME` share it: together they get no more\n"
         "GPU memory and time than the options say. The lease stays until it is deleted.",
     .options = lease_options,
     .run = sl_cmd_lease},
    {.name = "doctor",
     .summary = "check this machine, and say how to mend what does not work",
     .details = "The exit code is 1 when a problem keeps `sluice run` from working.",
     .options = doctor_options,
     .run = sl_cmd_doctor},
    {.name = "simulate",
     .synopsis = "[PODS-FILE...]",
     .summary = "try placement policies on a cluster and its pods",
     .details =
         "Pods arrive in random order until their GPU demand reaches --until percent of the\n"
         "cluster; a table shows how much GPU each policy leaves unallocated. Files are in\n"
         "the format of the public openb trace, with any further columns; without files a\n"
         "cluster and pods with similar proportions are made up. With --json one object a\n"
         "run is printed, one a line. With --live it reads the cluster that kubectl reaches, with\n"
         "your rights, and says which pods could move so that whole cards become free.",
     .options = simulate_options,
     .run = sl_cmd_simulate},
    {.name = "config",
     .synopsis = "check FILE",
     .summary = "check a node's configuration file",
     .details =
         "Prints the effective configuration: FILE (\"-\": standard input), the defaults, and\n"
         "the environment variables that the agent reads. Comments show what this node would\n"
         "advertise. For a wrong file it prints line and column, and the exit code is 1.",
     .options = config_options,
     .run = sl_cmd_config},
    {.name = "explain",
     .synopsis = "[pod] NAME",
     .summary = "say why a pod of a Kubernetes cluster waits or failed",
     .details =
         "Three sentences: what, why, and what to do. It reads the pod, its claims, its events "
         "and\n"
         "the nodes through kubectl, with your rights. `kubectl sluice explain NAME` is the same.\n"
         "The exit code is 0 when nothing is wrong, 1 when something is, 3 when it could not be\n"
         "found out.",
     .options = cluster_options,
     .run = sl_cmd_explain},
    {.name = "cluster",
     .synopsis = "nodes | pods | top",
     .summary = "show the GPUs of a Kubernetes cluster, and who has them",
     .details =
         "nodes: what each node has, has promised and has left. pods: what each pod asked for and\n"
         "was promised, and why it waits. top: nodes with their pods, the fullest first. It reads\n"
         "through kubectl, with your rights. `kubectl sluice nodes` is the same.",
     .options = cluster_options,
     .run = sl_cmd_cluster},
    {.name = "arbiter",
     .synopsis = "[check [FILE]]",
     .summary = "share the GPUs of a machine between its users",
     .details =
         "`sluice arbiter --system` serves all users of a group until it is ended: their `sluice`\n"
         "commands find it by themselves. SIGHUP reads the file again. `check` says what the file\n"
         "means, or line and column of a mistake. Without --system: the arbiter of one user and\n"
         "one directory, which `sluice run` starts by itself.",
     .options = arbiter_options,
     .run = sl_cmd_arbiter},
    {.name = "spin",
     .synopsis = "FD INDEX",
     .summary = "keep a GPU busy; only `sluice doctor` starts this",
     .flags = SL_VERB_HIDDEN,
     .run = sl_cmd_spin},
    {.name = "words",
     .synopsis = "[VERB [OPTION]]",
     .summary = "list what may come next, for shell completion",
     .options = words_options,
     .flags = SL_VERB_HIDDEN,
     .run = sl_cmd_words},
    {.name = NULL},
};
