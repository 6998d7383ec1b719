/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_NODE_ERRORS_H
#define SLUICE_AGENT_NODE_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("node");

SL_ERROR(NODE_MISSING, "there is no Node with this name: check NODE_NAME",
    "`NODE_NAME` is wrong, or the Node was deleted", "`NODE_NAME` from `spec.nodeName`");
SL_ERROR_ALSO(NODE_NAME_BAD, "\"%s\" cannot be the name of a node: set NODE_NAME");
SL_ERROR(NAMESPACE_BAD, "\"%s\" cannot be a namespace for NodeFeature objects: set POD_NAMESPACE",
    "`POD_NAMESPACE` is missing or wrong", "`POD_NAMESPACE` from `metadata.namespace`");
SL_ERROR(LABEL_FILE_BAD, "%s is not the name of a file",
    "`gfd.outputFile` cannot be written; it is tried again every `gfd.sleepInterval`",
    "make the folder, mount it, or change the setting");
SL_ERROR_ALSO(LABEL_FILE_LONG, "the file name %s is too long");
SL_ERROR(LABEL_FOREIGN_LOG, "node %s: another program sets label %s, too; Sluice does not change it for an hour",
    "GPU Feature Discovery, or another program, writes the same label (log)", "stop one of the two");
SL_ERROR(CLEANUP_FILE, "cannot remove /%s: %s",
    "`sluiced --cleanup`: the file system is read-only, or a file is in use",
    "end what uses it; the container of `deploy/cleanup` tries again");
SL_ERROR(CLEANUP_NODE, "cannot take labels and annotations from the Node (%s): %.300s",
    "`sluiced --cleanup`: the answer of the API server is in the message",
    "the rights in `deploy/cleanup`; the container tries again");
SL_ERROR(EVENT_UTF8, "the text of an event is not UTF-8",
    "a mistake in Sluice itself", "please report it");

#endif
