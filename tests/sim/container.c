/* SPDX-License-Identifier: Apache-2.0 */
/* What container.sh runs inside: "uuid" prints the first device's, "hold" takes a gibibyte until
 * told. */
#include "common/tenant.h"

#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sl_tenant t;
    int count = 0;
    CHECK(argc == 2);
    sl_tenant_open(&t, 0);
    CU_OK(cuDeviceGetCount(&count));
    CHECK(count == 1);
    if (strcmp(argv[1], "uuid") == 0) {
        CUuuid id;
        CU_OK(cuDeviceGetUuid_v2(&id, t.dev));
        (void)printf("GPU-");
        for (int i = 0; i < 16; i++)
            (void)printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                         (unsigned int)(unsigned char)id.bytes[i]);
        (void)printf("\n");
        return 0;
    }
    CUdeviceptr p;
    for (int i = 0; i < 200; i++) { /* both at once, on one lock */
        CU_OK(cuMemAlloc_v2(&p, 1 << 20));
        sl_tenant_empty(&t, NULL);
        CU_OK(cuCtxSynchronize());
        CU_OK(cuMemFree_v2(p));
    }
    CU_OK(cuMemAlloc_v2(&p, 1ULL << 30));
    (void)printf("pid %d holds\n", (int)getpid());
    (void)fflush(stdout);
    (void)getchar();
    CU_OK(cuMemFree_v2(p));
    (void)printf("done\n");
    return 0;
}
