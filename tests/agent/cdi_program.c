/* SPDX-License-Identifier: Apache-2.0 */
/* A program in a container that opens the driver's libraries as CUDA programs do. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) {
        (void)printf("%s\n", dlerror());
        return 1;
    }
    /* Under another name it is the same library, not a second one with a state of its own. */
    if (dlopen("libcuda.so", RTLD_NOW) != cuda) {
        (void)printf("libcuda.so and libcuda.so.1 are two libraries\n");
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        if (!dlopen(argv[i], RTLD_NOW)) {
            (void)printf("%s\n", dlerror());
            return 1;
        }
    }
    /* With a driver that is more than a name: how many cards are there? */
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*count)(int *) = (int (*)(int *))dlsym(cuda, "cuDeviceGetCount");
    int cards = 0;
    if (!init || !count) {
        (void)printf("found\n");
        return 0;
    }
    int error = init(0);
    if (error == 0)
        error = count(&cards);
    (void)printf("error %d, cards %d\n", error, cards);
    return 0;
}
