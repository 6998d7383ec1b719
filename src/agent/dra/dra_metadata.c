/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes of a request's devices as a file in its containers, where KEP-5304 says: KubeVirt's virt-launcher
 * reads there which device it has. One file for each request, in the state directory; the claim's CDI spec mounts it.
 */
#include "agent/dra/dra_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/dra/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/json_dump.h"
#include "base/log.h"

#define API_VERSION "metadata.resource.k8s.io/v1alpha1"
#define PLACE       "/var/run/kubernetes.io/dra-device-attributes"
#define FOLDER      "claim-metadata"

static json_t *devices_of(struct sl_dra *dra, const struct sl_prepared *p, const char *request,
                          char *full, size_t size)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < p->device_count; i++) {
        const struct sl_prepared_device *d = &p->device[i];
        const struct sl_vm_device *v = sl_vm_offer_find(dra->vm, d->share.gpu);
        if (!v || strcmp(d->request, request) != 0)
            continue;
        (void)snprintf(full, size, "%s%s%s", request, d->subrequest[0] ? "/" : "", d->subrequest);
        (void)json_array_append_new(devices,
                                    json_pack("{s:s,s:s,s:s,s:o}", "driver", SL_DRA_DRIVER, "pool",
                                              dra->opt.node_name, "name", d->device, "attributes",
                                              sl_slices_vm_attributes(v)));
    }
    return devices;
}

static char *make_text(struct sl_dra *dra, const struct sl_prepared *p, const char *request)
{
    char full[160] = "";
    json_t *devices = devices_of(dra, p, request, full, sizeof(full));
    json_t *o =
        json_pack("{s:s,s:s,s:{s:s,s:s,s:s,s:i},s:[{s:s,s:o}]}", "apiVersion", API_VERSION, "kind",
                  "DeviceMetadata", "metadata", "name", p->name, "namespace", p->name_space, "uid",
                  p->uid, "generation", 1, "requests", "name", full, "devices", devices);
    if (p->pod_claim[0])
        (void)json_object_set_new(o, "podClaimName", json_string(p->pod_claim));
    char *text = sl_json_dump(o, JSON_INDENT(2));
    json_decref(o);
    return text;
}

static void name_file(const char *uid, const char *request, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s.%s.json", uid, request);
}

int sl_dra_metadata_write(struct sl_dra *dra, const struct sl_prepared *p, const char *request,
                          struct sl_edits *e, struct sl_err *err)
{
    char dir[PATH_MAX], name[SL_UID_SIZE + 80], host[PATH_MAX + 200], inside[700];
    struct sl_err why = SL_ERR_INIT;
    (void)snprintf(dir, sizeof(dir), "%s/" FOLDER, dra->opt.state_dir);
    name_file(p->uid, request, name, sizeof(name));
    SL_CLEANUP(free) char *text = make_text(dra, p, request);
    int rc = text ? sl_fs_mkdirs(dir, 0755, &why) : -EILSEQ;
    SL_CLEANUP(close) int fd = rc == 0 ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (rc == 0 && fd < 0)
        rc = sl_err_errno(&why, errno, "cannot open %s", dir);
    if (rc == 0) /* virt-launcher is not root */
        rc = sl_fs_replace(fd, name, text, strlen(text), 0644, &why);
    if (rc < 0)
        return sl_err_set(err, rc, SL_E_METADATA_UNWRITTEN, p->name_space, p->name, why.msg);
    (void)snprintf(host, sizeof(host), "%s/" FOLDER "/%s", dra->opt.state_dir_host, name);
    (void)snprintf(inside, sizeof(inside), PLACE "/%s/%s/%s/" SL_DRA_DRIVER "-metadata.json",
                   p->pod_claim[0] ? "resourceclaimtemplates" : "resourceclaims",
                   p->pod_claim[0] ? p->pod_claim : p->name, request);
    sl_edits_mount(e, host, inside, true);
    return 0;
}

void sl_dra_metadata_remove(struct sl_dra *dra, const char *uid)
{
    char path[PATH_MAX];
    size_t n = strlen(uid);
    (void)snprintf(path, sizeof(path), "%s/" FOLDER, dra->opt.state_dir);
    SL_CLEANUP(closedir) DIR *dir = opendir(path);
    int fd = dir ? dirfd(dir) : -1;
    const struct dirent *entry;
    while (fd >= 0 && (entry = readdir(dir)))
        if (strncmp(entry->d_name, uid, n) == 0 && entry->d_name[n] == '.' &&
            unlinkat(fd, entry->d_name, 0) != 0 && errno != ENOENT)
            sl_warn("cannot remove %s/%s: %s", path, entry->d_name, strerror(errno));
}
