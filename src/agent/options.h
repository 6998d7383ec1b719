/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line and environment of sluiced. config/config.h reads the node's configuration (NVIDIA's flags, and ours
 * that are in the file too): those flags are passed on untouched.
 */
#ifndef SLUICE_AGENT_OPTIONS_H
#define SLUICE_AGENT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "agent/dra/device_name.h"
#include "base/err.h"
#include "config/config.h"

struct sl_agent_options {
    const char *node_name;  /* NULL: the machine's host name */
    const char *kubeconfig; /* NULL: the pod's service account */
    bool no_api; /* neither labels nor events on the Node: a node without an API server */
    /* The files from which the Node's label chooses; NULL: the config file only. */
    const char *config_dir;
    const char *default_config;
    const char *metrics_address; /* "": none */
    const char *metrics_names;   /* "sluice,hami,dcgm" … */
    unsigned names;              /* … and as enum sl_metrics_names */
    const char *cdi_dir;
    const char *state_dir, *state_dir_host;     /* libsluice for containers, the DRA checkpoint */
    const char *arbiter_dir, *arbiter_dir_host; /* the arbiter's sockets */
    const char *libsluice;                      /* NULL: the file beside this program */
    const char *instance;                       /* the agent pod's UID; NULL: none */
    const char *podres_socket;                  /* kubelet's PodResources */
    const char *plugin_dir, *registry_dir;      /* kubelet's, for DRA */
    const char *vm_root; /* has sys/ and dev/ of the machine, for devices of virtual machines */
    const char *log_level;
    bool dra;                      /* serve claims, not device plugins */
    const char *dra_driver;        /* gpu.sluice.io or gpu.nvidia.com */
    const char *consumable;        /* what a claim of gpu.nvidia.com gets */
    struct sl_dra_names dra_names; /* … both, read */
    bool nfd;                      /* labels also as a file for Node Feature Discovery */
    bool labels;                   /* write the Node's labels */
    bool node_feature;             /* labels as a NodeFeature object, where the server takes it */
    const char *pod_namespace;     /* namespace of that object */
    bool supervise;                /* start the agent again when a signal ended it */
    const char
        *cleanup; /* the node's root: take away what agents left, instead of being one; NULL: no */
    bool cleanup_stay; /* then wait for a signal: a DaemonSet's containers must not end */
    bool help, version;
    struct sl_config_override *flags; /* flags of the configuration */
    size_t flags_count;
};

/* Values are borrowed from argv and environ. Free with sl_agent_options_clear(). */
int sl_agent_options_parse(struct sl_agent_options *opt, int argc, char **argv,
                           char *const *environ_list, struct sl_err *err) SL_MUST_CHECK;
void sl_agent_options_clear(struct sl_agent_options *opt);
void sl_agent_options_help(FILE *out);

#endif
