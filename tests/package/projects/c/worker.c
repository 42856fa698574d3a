// Becomes the worker of a bundled kernel.
#include <unistd.h>

int main(void) {
  execl(WORKER, WORKER, PLUGIN, (char*)0);
  return 1;
}
