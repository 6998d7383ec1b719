/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_CONTROLLER_ERRORS_H
#define SLUICE_CONTROLLER_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("admission");

SL_ERROR(POD_HAS_NODE,
    "the pod names its node (%.100s), so no scheduler can give it a share of a GPU: write nodeSelector: "
    "{kubernetes.io/hostname: …} instead of nodeName",
    "`spec.nodeName` is set", "a `nodeSelector`");
SL_ERROR(CLAIM_NAME_TAKEN, "the pod has a claim named %s already: rename that claim",
    "Sluice uses this name for its own claim", "another name");
SL_ERROR(REQUEST_CONTAINER,
    "%s is about container %s at position %u, and the pod has no such container there: remove the annotation and write "
    "nvidia.com/gpumem and gpucores",
    "the annotation `sluice.io/request` was written by hand, or copied from another pod", "remove the annotation");

SL_ERROR_PART("placing");

SL_ERROR(NOT_LEADING, "this replica is not the leader, or does not know the cluster yet",
    "the scheduler reached a replica that starts or that follows; the scheduler asks again",
    "check that the Service `sluice-extender` selects the leader");
SL_ERROR_ALSO(NO_LONGER_LEADING, "this replica is no longer the leader");
SL_ERROR(NOT_PLACING, "this controller does not place pods: start it with --extender choose",
    "`filterVerb` is configured, and `--extender` is `off` or `prioritize`", "change one of the two");
SL_ERROR(POD_REPLACED, "another pod has the same name now",
    "the scheduler and the watch of the controller are a moment apart", "nothing: Sluice tries again by itself");
SL_ERROR(EXT_NO_NODES, "the request names no nodes: set nodeCacheCapable: true",
    "the caller is not kube-scheduler, or its configuration differs",
    "`deploy/controller/extender/scheduler-config.yaml`");
SL_ERROR_ALSO(EXT_NODE_NAME, "the name of a node is not a text");
SL_ERROR_ALSO(EXT_NO_POD, "the request has no Pod");
SL_ERROR_ALSO(EXT_BIND, "the bind request has no %s");
SL_ERROR_ALSO(JSON_BAD, "the body is not JSON: %.150s");
SL_ERROR_ALSO(JSON_LARGE, "this JSON has so many parts that it would need more than %llu MiB of memory");
SL_ERROR(REVIEW_VERSION, "the body is not an AdmissionReview of admission.k8s.io/v1: set admissionReviewVersions: [v1]",
    "the caller is not the API server, or uses another version of the protocol",
    "`deploy/controller/base/webhook.yaml`");
SL_ERROR_ALSO(REVIEW_UID, "the AdmissionReview has no request.uid");
SL_ERROR_ALSO(REVIEW_POD, "the AdmissionReview has no pod or no namespace");
SL_ERROR_ALSO(REVIEW_NAMESPACE, "the AdmissionReview's namespace is too long");
SL_ERROR_ALSO(REVIEW_LARGE, "an AdmissionReview of %zu bytes is too large");
SL_ERROR(SECRET_UNUSABLE_LOG, "the certificate of Secret %s cannot be used: %s",
    "the Secret was changed, or the names in its certificate are not those of the Service",
    "nothing: the certificate is replaced");
SL_ERROR_ALSO(SECRET_MISSING_LOG, "Secret %s has no usable certificate: %s");
SL_ERROR(SECRET_WRITE_LOG, "cannot write Secret %s: %s",
    "the answer of the API server is in the message; often rights are missing",
    "`deploy/controller/*/rbac.yaml`; it is tried again");
SL_ERROR_ALSO(CABUNDLE_LOG, "cannot write caBundle into the configuration of the webhook: %s");
SL_ERROR_ALSO(SCHEDULER_LOG, "cannot start Deployment %s again, which must read the new authority: %s");
SL_ERROR_ALSO(POD_LABEL_LOG, "cannot label the pod of this controller: %s");
SL_ERROR_ALSO(TEMPLATE_DELETE_LOG, "cannot delete an unused ResourceClaimTemplate: %s");
SL_ERROR(CONTROLLER_OPTION, "\"%.60s\" is not an option: see --help",
    "the command line (exit status 2 or 1)", "write what the message says");
SL_ERROR_ALSO(CONTROLLER_NEEDS_VALUE, "--%s needs a value: see --help");
SL_ERROR_ALSO(CONTROLLER_WORD, "--%s %.40s is not one of: %s");
SL_ERROR_ALSO(CONTROLLER_NO_EXTENDER,
    "--admission extender needs an extender that places the pods: add --extender choose");
SL_ERROR_ALSO(CONTROLLER_IDLE, "with --admission off and without --extender there is nothing to do: give one of them");
SL_ERROR_ALSO(CONTROLLER_NO_LISTEN,
    "with --listen off the webhook has no address: give an address, or --admission off");
SL_ERROR_ALSO(CONTROLLER_UNREACHABLE,
    "--extender without --listen and --extender-http cannot be reached: give one of the two");
SL_ERROR_ALSO(CONTROLLER_CLIENT_CA,
    "--extender-client needs an authority that signs the name: give --extender-client-ca");
SL_ERROR_ALSO(CONTROLLER_CLIENT_LISTEN,
    "--extender-client-ca is for an extender on --listen, but --listen or --extender is off");
SL_ERROR_ALSO(CONTROLLER_UI_LISTEN,
    "--ui-token-file is for a page on --listen or --ui-loopback, but both are off: give one of the two");
SL_ERROR_ALSO(CONTROLLER_UI_LOOPBACK,
    "--ui-loopback %.60s is not a loopback address with a port: write for example 127.0.0.1:8090");
SL_ERROR_ALSO(CONTROLLER_SLOT, "--slot-resource \"%.100s\" is not a resource: write for example nvidia.com/gpu");
SL_ERROR_ALSO(CONTROLLER_SECOND,
    "--second-scheduler \"%.80s\" is not a name of a scheduler: write for example sluice-scheduler");
SL_ERROR_ALSO(CONTROLLER_SECOND_FIRST,
    "--second-scheduler %s is the name of the first scheduler: give the second scheduler a name of its own");
SL_ERROR_ALSO(CONTROLLER_SECOND_OFF,
    "--second-scheduler is written into pods by the webhook, and --admission is off: give --admission extender");
SL_ERROR_ALSO(CONTROLLER_KEEP, "--keep-templates must be a number of seconds from 6 to 31536000");
SL_ERROR_ALSO(CONTROLLER_LEASE, "--lease-seconds must be a number from 3 to 3600");
SL_ERROR_ALSO(CONTROLLER_CERT_KEY, "--cert-file and --key-file must be given together");
SL_ERROR_ALSO(CONTROLLER_NAMESPACE, "the namespace of this controller is not known: give --namespace");
SL_ERROR_ALSO(CONTROLLER_SERVICE_LONG, "the names of service and namespace are too long");
SL_ERROR(CONTROLLER_SIGNALS, "cannot watch signals",
    "the system has no free descriptors", "raise `ulimit -n`");
SL_ERROR(SLICE_NAME_LONG, "the name of a ResourceSlice or of its pool is too long",
    "another DRA driver made the object", "nothing: the object is ignored");
SL_ERROR(NAMESPACE_LONG, "the name of namespace %.80s… is too long",
    "Kubernetes allows at most 63 characters", "please report it");

SL_ERROR_PART("admission");

SL_ERROR(DIALECT_NUMBER, "container %s: %s \"%s\" is not a whole number of %s: for 3 GiB write \"%u\"",
    "a value that the dialect does not allow", "write what the message says");
SL_ERROR_ALSO(DIALECT_VALUE, "container %s: %s \"%s\" is not %s");
SL_ERROR(DIALECT_BOTH, "container %s has both %s and %s: write only one of them",
    "memory in MiB and in percent", "keep one of them");
SL_ERROR(DIALECT_TWO,
    "container %s asks for GPUs with the resources of %s and of %s (%s): use the resources of one of them",
    "two dialects in one container or pod", "keep one of them");
SL_ERROR_ALSO(DIALECT_LABELS_TOO,
    "the pod has labels sharedgpu/… and its containers ask for GPUs with resources as well: keep one of the two");
SL_ERROR(DIALECT_MODE,
    "annotation %s \"%.40s\" asks for a mode that is not hami-core, and pods with a share of a GPU get no other: "
    "remove the annotation; for a MIG instance ask for nvidia.com/mig-…, or claim the class mig.gpu.sluice.io",
    "HAMi's dynamic MIG or its MPS; a share by libsluice would be less than the pod asks for",
    "remove the annotation; or [dra.md](dra.md), `deploy/overlays/mig-mixed`, `deploy/overlays/mps-2`");
SL_ERROR(GANG_IGNORED,
    "%s \"%.40s\" has no effect: the pods of a group are placed one by one, and some may run while others wait",
    "a warning: the pod comes in; there is no gang scheduling here",
    "a queue that starts whole jobs (Kueue), or programs that wait for the others");
SL_ERROR(POLICY_IGNORED,
    "annotation %s \"%.40s\" has no effect: only binpack, spread and numa are known; the policy of the cluster counts",
    "a warning: the pod comes in", "write `binpack` or `spread`, or remove the annotation");
SL_ERROR(INIT_ALONE,
    "init container %s asks for a GPU and no container of the pod does, which works with DRA only: give a container of "
    "the pod the same request, or move the work into a container",
    "with the device plugin, kubelet does not tell which GPU such a container has",
    "the same request in a container of the pod; or DRA");
SL_ERROR(POD_PRIVILEGED,
    "container %s is privileged and would see every GPU, so its share cannot be enforced: remove "
    "securityContext.privileged, or label the pod hami.io/webhook: ignore",
    "a privileged container sees all devices of the node",
    "remove `privileged`; or set the label `hami.io/webhook: ignore` and ask for no share");
SL_ERROR(POD_GPU_CONTAINERS, "more than %d containers of the pod ask for GPUs: use fewer containers, or several pods",
    "the most that can be promised to one pod", "smaller pods");
SL_ERROR_ALSO(POD_CONTAINERS, "the pod has more than %d containers");
SL_ERROR(KUBESHARE_MEM, "sharedgpu/gpu_mem \"%.40s\" is not a number of bytes: for 3 GiB write \"3221225472\"",
    "a label of KubeShare has a wrong value", "write what the message says");
SL_ERROR_ALSO(KUBESHARE_LIMIT, "sharedgpu/gpu_limit \"%.40s\" is not a part of a GPU: write for example \"1.0\"");
SL_ERROR_ALSO(KUBESHARE_LIMIT_HIGH,
    "sharedgpu/gpu_limit \"%.40s\" is more than one GPU: write the same whole number for gpu_request and gpu_limit");
SL_ERROR_ALSO(KUBESHARE_REQUEST,
    "sharedgpu/gpu_request \"%.40s\" is not a part of a GPU that is at most sharedgpu/gpu_limit: write for example "
    "\"0.5\"");
SL_ERROR(NAMES_BAD, "annotation %s is not a list of names with commas between them: write for example \"A100,H100\"",
    "an annotation such as `nvidia.com/use-gputype`",
    "names of letters, digits, blanks and `._-+/()`, at most 511 bytes");
SL_ERROR_ALSO(NAMES_LONG, "the lists of GPU types and UUIDs are too long together: name fewer of them");
SL_ERROR(CARD_SIZE_UNKNOWN,
    "container %s asks for %u %% of a card's memory, but no node of the cluster has reported the size of its cards "
    "yet: try again later, or ask for MiB",
    "a percentage, and no ResourceSlice of `gpu.sluice.io`", "install the node agent first; or use MiB");
SL_ERROR(REQUEST_TEXT, "%s is not a text, or is too long",
    "the annotation `sluice.io/request` was written by hand, or copied from another pod", "remove the annotation");
SL_ERROR_ALSO(REQUEST_PART, "part %zu contradicts itself");
SL_ERROR_ALSO(REQUEST_FORM, "the annotation is not as the webhook writes it");
SL_ERROR_ALSO(REQUEST_NO_CONTAINER, "part %zu names no container of the pod");
SL_ERROR(QUOTA_REACHED,
    "ResourceQuota %.200s allows %llu %s of GPU %s: %llu are promised already and the pod asks for %llu more: ask for "
    "less, or have the quota raised",
    "the sum over the namespace would exceed the quota", "ask for less, or raise the quota");
SL_ERROR(PRIORITY_NOT_ALLOWED,
    "container %s asks for priority high, and namespace %s may have normal at most: remove its priority, or have the "
    "administrator add the namespace to sluice-controller's --high-priority",
    "`nvidia.com/priority: 0` or `sharedgpu/priority`, and `--high-priority` does not name the namespace (403)",
    "remove the priority, or have the namespace added");

SL_ERROR_PART("placing");

SL_ERROR(NO_NODE, "no node has room for the pod",
    "no node has enough free GPU memory and time", "nothing: the scheduler tries again");
SL_ERROR_ALSO(NODE_FULL, "the node has no room for %u GPUs");
SL_ERROR_ALSO(NODE_NO_GPUS, "the node has no GPUs");
SL_ERROR(POD_PLACED, "the pod is on node %s already",
    "the scheduler and the watch of the controller are a moment apart", "nothing: Sluice tries again by itself");
SL_ERROR_ALSO(POD_BINDING, "the pod is being bound to node %s");
SL_ERROR_ALSO(POD_ELSEWHERE, "the pod is %s node %s");
SL_ERROR_ALSO(POD_UNKNOWN, "the pod is not known here yet, or no longer");
SL_ERROR_ALSO(NODE_UNKNOWN, "node %.100s is not known here");
SL_ERROR_ALSO(POD_NO_REQUEST, "the pod asks for no GPU in %s");
SL_ERROR(POD_BYPASSED,
    "container %s has no %s in its limits, so kubelet would give it no GPU: the webhook of sluice-controller did not "
    "see this pod; delete the pod and create it again",
    "no webhook answered when the pod was created (`failurePolicy: Ignore`)", "delete the pod and create it again");
SL_ERROR(EXT_POD, "the pod has no uid or asks for no GPU",
    "the caller is not kube-scheduler, or its configuration differs",
    "`deploy/controller/extender/scheduler-config.yaml`");
SL_ERROR(RESIZE_NO_ROOM,
    "a GPU of node %s does not have that much free memory and time: ask for less, or delete the pod and create it with "
    "the new size",
    "other pods were promised the rest of the card; the share stays as it is",
    "ask for less, or delete the pod: its successor may go to another card");
SL_ERROR(RESIZE_FOREIGN,
    "this pod has no lease of sluice-controller: delete the pod, and create it with the size that it shall have",
    "HAMi's scheduler placed the pod", "delete the pod and create it again");
SL_ERROR(RESIZE_NEVER,
    "pods may not be resized here: have the administrator start sluice-controller with --resize allocated",
    "`--resize never`; the share stays as it is", "delete the pod and create it with the new size");
SL_ERROR(RESIZE_BEYOND,
    "the pod was allocated %llu MiB and %u %% of each GPU, and pods of namespace %s may not have more by a resize: ask "
    "for at most that, or have the administrator add the namespace to sluice-controller's --resize-free",
    "`--resize allocated`, and `--resize-free` does not name the namespace; the share stays as it is",
    "ask for less, or have the namespace added");
SL_ERROR_ALSO(RESIZE_WRITE_LOG, "cannot write the lease of %s after a resize: %s");
SL_ERROR_ALSO(RESIZE_TELL_LOG, "cannot tell node %s that a lease was resized: %s");
SL_ERROR(QUOTA_BAD, "%.100s is not a quantity",
    "an object of the API server that should not exist", "in a ResourceQuota write a number of MiB or percent");
SL_ERROR_ALSO(QUOTA_NAME, "a ResourceQuota has no name");
SL_ERROR_ALSO(NODE_NAME_MISSING, "a node has no name");
SL_ERROR_ALSO(POD_UID_MISSING, "a pod has no uid");
SL_ERROR(POD_GPUS, "a pod asks for more than %d GPUs",
    "the most that can be promised to one pod", "smaller pods");

#endif
