/* A shared library that is no plug-in. */
int no_plugin_here(void);
int no_plugin_here(void) { return 42; }
