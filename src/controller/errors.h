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
    "`spec.nodeName` is set",
    "a `nodeSelector`");
SL_ERROR(CLAIM_NAME_TAKEN,
    "the pod has a claim named %s already: rename that claim",
    "Sluice uses this name for its own claim",
    "another name");
SL_ERROR(REQUEST_CONTAINER,
    "%s is about container %s at position %u, and the pod has no such container there: remove the annotation and "
    "write nvidia.com/gpumem and gpucores",
    "the annotation `sluice.io/request` was written by hand, or copied from another pod",
    "remove the annotation");

SL_ERROR_PART("placing");

SL_ERROR(NOT_LEADING,
    "this replica is not the leader, or does not know the cluster yet",
    "the scheduler reached a replica that starts or that follows; the scheduler asks again",
    "check that the Service `sluice-extender` selects the leader");
SL_ERROR_ALSO(NO_LONGER_LEADING, "this replica is no longer the leader");
SL_ERROR(NOT_PLACING,
    "this controller does not place pods: start it with --extender choose",
    "`filterVerb` is configured, and `--extender` is `off` or `prioritize`",
    "change one of the two");
SL_ERROR(POD_REPLACED,
    "another pod has the same name now",
    "the scheduler and the watch of the controller are a moment apart",
    "nothing: it is tried again");
SL_ERROR(EXT_NO_NODES,
    "the request names no nodes: set nodeCacheCapable: true",
    "the caller is not kube-scheduler, or its configuration differs",
    "`deploy/controller/extender/scheduler-config.yaml`");
SL_ERROR_ALSO(EXT_NODE_NAME, "the name of a node is not a text");
SL_ERROR_ALSO(EXT_NO_POD, "the request has no Pod");
SL_ERROR_ALSO(EXT_BIND, "the bind request has no %s");
SL_ERROR_ALSO(EXT_POD_NAME, "the pod's name is too long");
SL_ERROR_ALSO(JSON_BAD, "the body is not JSON: %.150s");
SL_ERROR_ALSO(JSON_LARGE, "this JSON has so many parts that it would need more than %llu MiB of memory");
SL_ERROR(REVIEW_VERSION,
    "the body is not an AdmissionReview of admission.k8s.io/v1: set admissionReviewVersions: [v1]",
    "the caller is not the API server, or uses another version of the protocol",
    "`deploy/controller/base/webhook.yaml`");
SL_ERROR_ALSO(REVIEW_UID, "the AdmissionReview has no request.uid");
SL_ERROR_ALSO(REVIEW_POD, "the AdmissionReview has no pod or no namespace");
SL_ERROR_ALSO(REVIEW_NAMESPACE, "the AdmissionReview's namespace is too long");
SL_ERROR_ALSO(REVIEW_LARGE, "an AdmissionReview of %zu bytes is too large");
SL_ERROR(SECRET_UNUSABLE_LOG,
    "the certificate of Secret %s cannot be used: %s",
    "somebody changed the Secret, or its names are not those of the Service",
    "nothing: the certificate is replaced");
SL_ERROR_ALSO(SECRET_MISSING_LOG, "Secret %s has no usable certificate: %s");
SL_ERROR(SECRET_WRITE_LOG,
    "cannot write Secret %s: %s",
    "the answer of the API server is in the message; often rights are missing",
    "`deploy/controller/*/rbac.yaml`; it is tried again");
SL_ERROR_ALSO(CABUNDLE_LOG, "cannot write caBundle into the configuration of the webhook: %s");
SL_ERROR_ALSO(POD_LABEL_LOG, "cannot label the pod of this controller: %s");
SL_ERROR_ALSO(TEMPLATE_DELETE_LOG, "cannot delete an unused ResourceClaimTemplate: %s");
SL_ERROR(CONTROLLER_OPTION,
    "\"%.60s\" is not an option: see --help",
    "the command line (exit status 2 or 1)",
    "write what the message says");
SL_ERROR_ALSO(CONTROLLER_NEEDS_VALUE, "--%s needs a value: see --help");
SL_ERROR_ALSO(CONTROLLER_WORD, "--%s %.40s is not one of: %s");
SL_ERROR_ALSO(CONTROLLER_NO_EXTENDER,
    "--admission extender needs an extender that places the pods: add --extender choose");
SL_ERROR_ALSO(CONTROLLER_IDLE,
    "with --admission off and without --extender there is nothing to do: give one of them");
SL_ERROR_ALSO(CONTROLLER_NO_LISTEN,
    "with --listen off the webhook has no address: give an address, or --admission off");
SL_ERROR_ALSO(CONTROLLER_UNREACHABLE,
    "--extender without --listen and --extender-http cannot be reached: give one of the two");
SL_ERROR_ALSO(CONTROLLER_CLIENT_CA,
    "--extender-client needs an authority that signs the name: give --extender-client-ca");
SL_ERROR_ALSO(CONTROLLER_CLIENT_LISTEN,
    "--extender-client-ca is for an extender on --listen, but --listen or --extender is off");
SL_ERROR_ALSO(CONTROLLER_SLOT, "--slot-resource \"%.100s\" is not a resource: write for example nvidia.com/gpu");
SL_ERROR_ALSO(CONTROLLER_KEEP, "--keep-templates must be a number of seconds from 6 to 31536000");
SL_ERROR_ALSO(CONTROLLER_LEASE, "--lease-seconds must be a number from 3 to 3600");
SL_ERROR_ALSO(CONTROLLER_CERT_KEY, "--cert-file and --key-file must be given together");
SL_ERROR_ALSO(CONTROLLER_NAMESPACE, "the namespace of this controller is not known: give --namespace");
SL_ERROR_ALSO(CONTROLLER_NAME_LONG, "the name of the Secret or of the webhook is too long");
SL_ERROR_ALSO(CONTROLLER_SERVICE_LONG, "the names of service and namespace are too long");
SL_ERROR(CONTROLLER_SIGNALS, "cannot watch signals", "the system has no free descriptors", "raise `ulimit -n`");

#endif
