/*
 * symbol.h - which function an address of this process is in.
 *
 * It reads the system's list of mapped files, and the symbols of the file: also those that a
 * program does not export. It takes no lock and no memory but the stack and mappings of its own, so
 * it works while other threads of the process are stuck, be it within malloc() or the dynamic
 * linker. Source of the format: "Tool Interface Standard, Executable and Linking Format", 1.2.
 */
#ifndef DP_BASE_SYSTEM_SYMBOL_H
#define DP_BASE_SYSTEM_SYMBOL_H

#include <stddef.h>
#include <stdint.h>

/* Writes "function" where it belongs to the program, "function (library)" where it does not,
 * "file+0x1234" where its file has no symbol for it, and "?" where it belongs to no file, as code
 * made at run time. size: at least 4. */
void dp_symbol_name(uintptr_t address, char *out, size_t size);

#endif
