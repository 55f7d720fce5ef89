/* The part of bcryptprimitives.dll that Python's Windows build needs at its start, and that older Wine lacks. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count)
{
    return RtlGenRandom(bytes, (ULONG)count);
}
