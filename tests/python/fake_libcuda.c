/* What the package calls of CUDA's driver, over memory of the host: streams do at once what they
 * are told. It is built as libcuda.so.1, with the types of cuda.h, so that calls through ctypes
 * pass what these take. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static char context; /* whose address is a handle */
static float now;
static int lost;

int cuInit(unsigned flags) {
  const char* code = getenv("FAKE_INIT");
  return code ? atoi(code) : (int)flags;
}
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal; }
int cuDevicePrimaryCtxRetain(void** made, int device) { return *made = &context, device; }
int cuCtxSetCurrent(void* given) { return given == &context ? 0 : 201; }
int cuStreamCreate(void** stream, unsigned flags) {
  return *stream = malloc(1), flags == 1 ? 0 : 1;
}
int cuEventCreate(void** event, unsigned flags) {
  return *event = calloc(1, sizeof now), (int)flags;
}
int cuEventDestroy_v2(void* event) { return free(event), 0; }
int cuEventRecord(void* event, void* stream) {
  return *(float*)event = now += 1500, (void)stream, 0; /* milliseconds */
}
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return *milliseconds = *(float*)end - *(float*)begin, 0;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return (void)stream, event ? (int)flags : 400;
}
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  return function(data), stream ? 0 : 400;
}
int cuMemAlloc_v2(unsigned long long* address, size_t size) {
  void* memory = size < (size_t)1 << 40 ? aligned_alloc(4096, (size + 4095) / 4096 * 4096) : NULL;
  return *address = (unsigned long long)memory, memory ? 0 : 2;
}
int cuMemFree_v2(unsigned long long address) { return free((void*)address), 0; }
int cuMemHostAlloc(void** memory, size_t size, unsigned flags) {
  return *memory = malloc(size), flags == 1 ? 0 : 1;
}
int cuMemFreeHost(void* memory) { return free(memory), 0; }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t size, void* stream) {
  return memcpy((void*)to, from, size), (void)stream, 0;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t size, void* stream) {
  return memcpy(to, (void*)from, size), (void)stream, 0;
}
int cuMemsetD8Async(unsigned long long to, unsigned char byte, size_t size, void* stream) {
  if (byte == 0xee) lost = 1; /* as a kernel's stray access would do */
  return memset((void*)to, byte, size), (void)stream, 0;
}
int cuMemGetInfo_v2(size_t* free, size_t* all) {
  const char* gib = getenv("FAKE_FREE_GIB");
  return *free = (size_t)atoi(gib ? gib : "80") << 30, *all = (size_t)80 << 30, 0;
}
int cuCtxSynchronize(void) { return lost ? 700 : 0; }
int cuGetErrorName(int code, const char** name) {
  return *name = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
                 : code == 3   ? "CUDA_ERROR_NOT_INITIALIZED"
                 : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                               : NULL,
         *name ? 0 : 1;
}
int cuGetErrorString(int code, const char** text) {
  return *text = code == 2   ? "out of memory"
                 : code == 3 ? "initialization error"
                             : "an illegal memory access was encountered",
         0;
}
