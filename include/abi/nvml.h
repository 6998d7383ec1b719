/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML ABI as we use it, declared from its documentation: names, layouts and numbers are the
 * library's, so this file keeps NVML's spelling (and its pointer typedefs) instead of ours.
 *
 * Every function is declared under its exact exported name. NVML's own header hides version
 * suffixes behind macros; here `nvmlInit_v2` is `nvmlInit_v2`, and the suffixless name is the oldest
 * ABI. Nobody links against these: look them up (src/gpu), interpose them (src/preload), or define
 * them (sim).
 */
#ifndef SLUICE_ABI_NVML_H
#define SLUICE_ABI_NVML_H

#include <stddef.h>

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_ALREADY_INITIALIZED = 5,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_INSUFFICIENT_POWER = 8,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_IRQ_ISSUE = 11,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_DEPRECATED = 26,
    NVML_ERROR_NOT_READY = 27,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_INVALID_STATE = 29,
    NVML_ERROR_RESET_TYPE_NOT_SUPPORTED = 30,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* "Not known" in 64-bit figures (for one: a process's memory on a card that cannot tell). */
#define NVML_VALUE_NOT_AVAILABLE (~0ULL)
#define NVML_NO_INSTANCE         0xFFFFFFFFu /* gpuInstanceId, computeInstanceId without MIG */

/* The version word of a versioned struct: its size and its number. */
#define NVML_STRUCT_VERSION(type, number)                                                          \
    ((unsigned int)(sizeof(type) | ((unsigned int)(number) << 24)))

#define NVML_DEVICE_UUID_V2_BUFFER_SIZE        96
#define NVML_DEVICE_NAME_V2_BUFFER_SIZE        96
#define NVML_DEVICE_SERIAL_BUFFER_SIZE         30
#define NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE 80
#define NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE   80
#define NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE  16
#define NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE     32
#define NVML_MAX_NVLINKS                       18

#define NVML_INIT_FLAG_NO_GPUS   1u
#define NVML_INIT_FLAG_NO_ATTACH 2u

/* ---- enumerations (plain ints on the wire) ---- */

enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 };
enum {
    NVML_COMPUTEMODE_DEFAULT = 0,
    NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1,
    NVML_COMPUTEMODE_PROHIBITED = 2,
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
};
enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3 };
enum { NVML_TEMPERATURE_GPU = 0 };
enum { NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1 };
enum { NVML_PSTATE_0 = 0, NVML_PSTATE_8 = 8 };
enum {
    NVML_TOPOLOGY_INTERNAL = 0,
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
    NVML_TOPOLOGY_SYSTEM = 50
};
enum {
    NVML_P2P_CAPS_INDEX_READ = 0,
    NVML_P2P_CAPS_INDEX_WRITE = 1,
    NVML_P2P_CAPS_INDEX_NVLINK = 2,
    NVML_P2P_CAPS_INDEX_ATOMICS = 3,
    NVML_P2P_CAPS_INDEX_PCI = 4
};
enum { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5, NVML_P2P_STATUS_UNKNOWN = 6 };
enum {
    NVML_NVLINK_DEVICE_TYPE_GPU = 0,
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2,
    NVML_NVLINK_DEVICE_TYPE_UNKNOWN = 255
};
enum {
    NVML_NVLINK_CAP_P2P_SUPPORTED = 0,
    NVML_NVLINK_CAP_SYSMEM_ACCESS = 1,
    NVML_NVLINK_CAP_P2P_ATOMICS = 2,
    NVML_NVLINK_CAP_SYSMEM_ATOMICS = 3,
    NVML_NVLINK_CAP_SLI_BRIDGE = 4,
    NVML_NVLINK_CAP_VALID = 5
};
enum {
    NVML_TOTAL_POWER_SAMPLES = 0,
    NVML_GPU_UTILIZATION_SAMPLES = 1,
    NVML_MEMORY_UTILIZATION_SAMPLES = 2
};
enum { NVML_VALUE_TYPE_DOUBLE = 0, NVML_VALUE_TYPE_UNSIGNED_INT = 1 };
enum { NVML_AFFINITY_SCOPE_NODE = 0, NVML_AFFINITY_SCOPE_SOCKET = 1 };
enum { NVML_DRIVER_WDDM = 0, NVML_DRIVER_WDM = 1, NVML_DRIVER_MCDM = 2 };

#define nvmlEventTypeSingleBitEccError 0x1ULL
#define nvmlEventTypeDoubleBitEccError 0x2ULL
#define nvmlEventTypePState            0x4ULL
#define nvmlEventTypeXidCriticalError  0x8ULL
#define nvmlEventTypeClock             0x10ULL
#define nvmlEventTypePowerSourceChange 0x80ULL
#define nvmlEventMigConfigChange       0x100ULL

#define NVML_DEVICE_MIG_DISABLE 0u
#define NVML_DEVICE_MIG_ENABLE  1u

enum {
    NVML_GPU_INSTANCE_PROFILE_1_SLICE = 0x0,
    NVML_GPU_INSTANCE_PROFILE_2_SLICE = 0x1,
    NVML_GPU_INSTANCE_PROFILE_3_SLICE = 0x2,
    NVML_GPU_INSTANCE_PROFILE_4_SLICE = 0x3,
    NVML_GPU_INSTANCE_PROFILE_7_SLICE = 0x4,
    NVML_GPU_INSTANCE_PROFILE_8_SLICE = 0x5,
    NVML_GPU_INSTANCE_PROFILE_6_SLICE = 0x6,
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 = 0x7, /* +me */
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1 = 0x8,
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2 = 0x9, /* twice the memory */
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX = 0xA,
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX = 0xB,
    NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX = 0xC,
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME = 0xD,
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME = 0xE,
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME = 0xF,
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME = 0x10,
    NVML_GPU_INSTANCE_PROFILE_COUNT = 0x11
};
#define NVML_GPU_INSTANCE_PROFILE_CAPS_P2P 0x1u

enum {
    NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE = 0x0,
    NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE = 0x1,
    NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE = 0x2,
    NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE = 0x3,
    NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE = 0x4,
    NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE = 0x5,
    NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE = 0x6,
    NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1 = 0x7,
    NVML_COMPUTE_INSTANCE_PROFILE_COUNT = 0x8
};
enum { NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED = 0 };

/* ---- structs ---- */

/* Of nvmlDeviceGetPciInfo and _v2. */
typedef struct {
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
    unsigned int domain, bus, device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    unsigned int reserved0, reserved1, reserved2, reserved3;
} nvmlPciInfo_v2_t;
_Static_assert(sizeof(nvmlPciInfo_v2_t) == 52, "NVML ABI");

/* Of nvmlDeviceGetPciInfo_v3 and nvmlDeviceGetNvLinkRemotePciInfo_v2. */
typedef struct {
    char busIdLegacy[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
    unsigned int domain, bus, device;
    unsigned int pciDeviceId; /* device << 16 | vendor */
    unsigned int pciSubSystemId;
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
} nvmlPciInfo_t;
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "NVML ABI");

/* Of nvmlDeviceGetPciInfoExt: with the class. */
typedef struct {
    unsigned int version; /* NVML_PCI_INFO_EXT_V1 */
    unsigned int domain, bus, device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    unsigned int baseClass, subClass; /* 3 and 2: a 3D controller */
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
} nvmlPciInfoExt_v1_t;
_Static_assert(sizeof(nvmlPciInfoExt_v1_t) == 64, "NVML ABI");
#define NVML_PCI_INFO_EXT_V1 NVML_STRUCT_VERSION(nvmlPciInfoExt_v1_t, 1)

enum {
    NVML_GPU_FABRIC_STATE_NOT_SUPPORTED = 0,
    NVML_GPU_FABRIC_STATE_NOT_STARTED = 1,
    NVML_GPU_FABRIC_STATE_IN_PROGRESS = 2,
    NVML_GPU_FABRIC_STATE_COMPLETED = 3
};

typedef struct {
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;
_Static_assert(sizeof(nvmlGpuFabricInfo_t) == 28, "NVML ABI");

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
_Static_assert(sizeof(nvmlMemory_t) == 24, "NVML ABI");

typedef struct {
    unsigned int version; /* NVML_MEMORY_V2 */
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "NVML ABI");
#define NVML_MEMORY_V2 NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)

typedef struct {
    unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;
_Static_assert(sizeof(nvmlBAR1Memory_t) == 24, "NVML ABI");

/* Of the suffixless running-process calls. */
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "NVML ABI");

/* Of the _v2 and _v3 running-process calls. */
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory; /* or NVML_VALUE_NOT_AVAILABLE */
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_v2_t;
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24, "NVML ABI");
typedef nvmlProcessInfo_v2_t nvmlProcessInfo_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;
_Static_assert(sizeof(nvmlProcessDetail_v1_t) == 32, "NVML ABI");

enum { NVML_PROCESS_MODE_COMPUTE = 0, NVML_PROCESS_MODE_GRAPHICS = 1, NVML_PROCESS_MODE_MPS = 2 };

typedef struct {
    unsigned int version; /* NVML_PROCESS_DETAIL_LIST_V1 */
    unsigned int mode;
    unsigned int numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;
_Static_assert(sizeof(nvmlProcessDetailList_v1_t) == 24, "NVML ABI");
#define NVML_PROCESS_DETAIL_LIST_V1 NVML_STRUCT_VERSION(nvmlProcessDetailList_v1_t, 1)

typedef struct {
    unsigned int gpu, memory; /* percent */
} nvmlUtilization_t;
_Static_assert(sizeof(nvmlUtilization_t) == 8, "NVML ABI");

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp; /* microseconds */
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "NVML ABI");

typedef struct {
    unsigned long long timeStamp;
    unsigned int pid;
    unsigned int smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;
_Static_assert(sizeof(nvmlProcessUtilizationInfo_v1_t) == 40, "NVML ABI");

typedef struct {
    unsigned int version; /* NVML_PROCESSES_UTILIZATION_INFO_V1 */
    unsigned int processSamplesCount;
    unsigned long long lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;
_Static_assert(sizeof(nvmlProcessesUtilizationInfo_v1_t) == 24, "NVML ABI");
#define NVML_PROCESSES_UTILIZATION_INFO_V1 NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1)

typedef union {
    double dVal;
    int siVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
    unsigned short usVal;
} nvmlValue_t;
_Static_assert(sizeof(nvmlValue_t) == 8, "NVML ABI");

typedef struct {
    unsigned long long timeStamp; /* microseconds */
    nvmlValue_t sampleValue;
} nvmlSample_t;
_Static_assert(sizeof(nvmlSample_t) == 16, "NVML ABI");

/* Of nvmlEventSetWait. */
typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType;
    unsigned long long eventData; /* the XID */
} nvmlEventData_v1_t;
_Static_assert(sizeof(nvmlEventData_v1_t) == 24, "NVML ABI");

/* Of nvmlEventSetWait_v2. */
typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType;
    unsigned long long eventData;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlEventData_t;
_Static_assert(sizeof(nvmlEventData_t) == 32, "NVML ABI");

typedef struct {
    unsigned int multiprocessorCount;
    unsigned int sharedCopyEngineCount;
    unsigned int sharedDecoderCount;
    unsigned int sharedEncoderCount;
    unsigned int sharedJpegCount;
    unsigned int sharedOfaCount;
    unsigned int gpuInstanceSliceCount;
    unsigned int computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "NVML ABI");

typedef struct {
    unsigned int start, size;
} nvmlGpuInstancePlacement_t;
typedef nvmlGpuInstancePlacement_t nvmlComputeInstancePlacement_t;

typedef struct {
    unsigned int id;
    unsigned int isP2pSupported;
    unsigned int sliceCount;
    unsigned int instanceCount;
    unsigned int multiprocessorCount;
    unsigned int copyEngineCount;
    unsigned int decoderCount;
    unsigned int encoderCount;
    unsigned int jpegCount;
    unsigned int ofaCount;
    unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;
_Static_assert(sizeof(nvmlGpuInstanceProfileInfo_t) == 48, "NVML ABI");

typedef struct {
    unsigned int version; /* NVML_GPU_INSTANCE_PROFILE_INFO_V2 */
    unsigned int id;
    unsigned int isP2pSupported;
    unsigned int sliceCount;
    unsigned int instanceCount;
    unsigned int multiprocessorCount;
    unsigned int copyEngineCount;
    unsigned int decoderCount;
    unsigned int encoderCount;
    unsigned int jpegCount;
    unsigned int ofaCount;
    unsigned long long memorySizeMB;
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
} nvmlGpuInstanceProfileInfo_v2_t;
_Static_assert(sizeof(nvmlGpuInstanceProfileInfo_v2_t) == 152, "NVML ABI");
#define NVML_GPU_INSTANCE_PROFILE_INFO_V2 NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)

typedef struct {
    unsigned int version; /* NVML_GPU_INSTANCE_PROFILE_INFO_V3 */
    unsigned int id;
    unsigned int sliceCount;
    unsigned int instanceCount;
    unsigned int multiprocessorCount;
    unsigned int copyEngineCount;
    unsigned int decoderCount;
    unsigned int encoderCount;
    unsigned int jpegCount;
    unsigned int ofaCount;
    unsigned long long memorySizeMB;
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    unsigned int capabilities;
} nvmlGpuInstanceProfileInfo_v3_t;
_Static_assert(sizeof(nvmlGpuInstanceProfileInfo_v3_t) == 152, "NVML ABI");
#define NVML_GPU_INSTANCE_PROFILE_INFO_V3 NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3)

typedef struct {
    nvmlDevice_t device;
    unsigned int id;
    unsigned int profileId;
    nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;
_Static_assert(sizeof(nvmlGpuInstanceInfo_t) == 24, "NVML ABI");

typedef struct {
    unsigned int id;
    unsigned int sliceCount;
    unsigned int instanceCount;
    unsigned int multiprocessorCount;
    unsigned int sharedCopyEngineCount;
    unsigned int sharedDecoderCount;
    unsigned int sharedEncoderCount;
    unsigned int sharedJpegCount;
    unsigned int sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;
_Static_assert(sizeof(nvmlComputeInstanceProfileInfo_t) == 36, "NVML ABI");

typedef struct {
    unsigned int version; /* NVML_COMPUTE_INSTANCE_PROFILE_INFO_V2 */
    unsigned int id;
    unsigned int sliceCount;
    unsigned int instanceCount;
    unsigned int multiprocessorCount;
    unsigned int sharedCopyEngineCount;
    unsigned int sharedDecoderCount;
    unsigned int sharedEncoderCount;
    unsigned int sharedJpegCount;
    unsigned int sharedOfaCount;
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
} nvmlComputeInstanceProfileInfo_v2_t;
_Static_assert(sizeof(nvmlComputeInstanceProfileInfo_v2_t) == 136, "NVML ABI");
#define NVML_COMPUTE_INSTANCE_PROFILE_INFO_V2                                                      \
    NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2)

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    unsigned int id;
    unsigned int profileId;
    nvmlComputeInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;
_Static_assert(sizeof(nvmlComputeInstanceInfo_t) == 32, "NVML ABI");

/* ---- vGPU, as a guest sees it ---- */

#define NVML_GPU_VIRTUALIZATION_MODE_VGPU 2

#define NVML_GRID_LICENSE_BUFFER_SIZE       128
#define NVML_GRID_LICENSE_FEATURE_MAX_COUNT 3

#define NVML_GRID_LICENSE_EXPIRY_VALID     2
#define NVML_GRID_LICENSE_EXPIRY_PERMANENT 4

typedef struct {
    unsigned int year;
    unsigned short month, day, hour, min, sec;
    unsigned char status;
} nvmlGridLicenseExpiry_t;
_Static_assert(sizeof(nvmlGridLicenseExpiry_t) == 16, "NVML ABI");

typedef struct {
    unsigned int featureCode;
    unsigned int featureState; /* not 0: licensed */
    char licenseInfo[NVML_GRID_LICENSE_BUFFER_SIZE];
    char productName[NVML_GRID_LICENSE_BUFFER_SIZE];
    unsigned int featureEnabled; /* not 0: this is the feature that the vGPU's type needs */
    nvmlGridLicenseExpiry_t licenseExpiry;
} nvmlGridLicensableFeature_t;
_Static_assert(sizeof(nvmlGridLicensableFeature_t) == 284, "NVML ABI");

typedef struct {
    int isGridLicenseSupported;
    unsigned int licensableFeaturesCount;
    nvmlGridLicensableFeature_t gridLicensableFeatures[NVML_GRID_LICENSE_FEATURE_MAX_COUNT];
} nvmlGridLicensableFeatures_t;
_Static_assert(sizeof(nvmlGridLicensableFeatures_t) == 860, "NVML ABI");

/* ---- functions, each under its exported name ----
 *
 * NVML_FN(name, since, parameters): `since` is the first driver branch that has the name, as far as
 * we know it (0: older than anything we care about). The list is data: it declares, and the
 * simulated library and the tests expand it again.
 */
#include "abi/nvml_functions.def"

#define NVML_FN(name, since, params) nvmlReturn_t name params;
NVML_FUNCTIONS(NVML_FN)
#undef NVML_FN

/* The one call that does not return nvmlReturn_t. */
const char *nvmlErrorString(nvmlReturn_t result);

#endif
