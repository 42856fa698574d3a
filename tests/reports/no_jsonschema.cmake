message(FATAL_ERROR "The reports cannot be held to their schemas: no python3 here can import "
                    "jsonschema. On Debian: apt-get install python3-jsonschema, then configure "
                    "again.")
