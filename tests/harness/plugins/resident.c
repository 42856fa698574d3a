// A system that calls every page resident, as some sandboxes do: to be loaded before all else.
#include <string.h>
#include <unistd.h>

int mincore(void* address, size_t bytes, unsigned char* in_memory);
int mincore(void* address, size_t bytes, unsigned char* in_memory) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  (void)address;
  memset(in_memory, 1, (bytes + page - 1) / page);
  return 0;
}
