# Instruction sets of the kernel files, and of nothing else: the program must start on any processor.
# -Wno-(maybe-)uninitialized: GCC 12 warns about its own AVX-512 intrinsics (bug 105593).
set(kernels_flags -O3 -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND kernels_flags -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
set(cpu_dir ${CMAKE_CURRENT_LIST_DIR})
set_source_files_properties(${cpu_dir}/kernels_avx512.cc PROPERTIES COMPILE_OPTIONS
  "${kernels_flags};-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vbmi;-mprefer-vector-width=512")
set_source_files_properties(${cpu_dir}/kernels_avx2.cc PROPERTIES COMPILE_OPTIONS "${kernels_flags};-mavx2;-mfma;-mf16c")
set_source_files_properties(${cpu_dir}/kernels_portable.cc PROPERTIES COMPILE_OPTIONS "${kernels_flags}")
