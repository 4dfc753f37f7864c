# What every target of the project shares: warnings, and the rule that a library sees only the headers of
# the libraries it links.
# With sanitizers gcc warns of paths that can't be taken: warnings are not errors there.
set(BAGPIPE_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wno-missing-field-initializers) # what a row of a table leaves out is zero
if(BAGPIPE_WERROR AND NOT BAGPIPE_SANITIZE)
  list(APPEND BAGPIPE_WARNINGS -Werror)
endif()

add_library(bp_flags INTERFACE)
target_compile_options(bp_flags INTERFACE ${BAGPIPE_WARNINGS} -fno-math-errno -ffp-contract=off)
target_compile_definitions(bp_flags INTERFACE _GNU_SOURCE)
# Hardening. _FORTIFY_SOURCE needs optimisation, and hides from sanitizers what they are there to see.
include(CheckPIESupported)
check_pie_supported()
target_compile_options(bp_flags INTERFACE -fstack-protector-strong)
target_link_options(bp_flags INTERFACE -Wl,-z,relro,-z,now)
if(NOT BAGPIPE_SANITIZE)
  target_compile_options(bp_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
endif()
if(BAGPIPE_SANITIZE)
  target_compile_options(bp_flags INTERFACE -fsanitize=${BAGPIPE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(bp_flags INTERFACE -fsanitize=${BAGPIPE_SANITIZE})
  target_compile_options(bp_flags INTERFACE $<$<BOOL:${BAGPIPE_FUZZ}>:-fno-sanitize-recover=all>)
endif()

# bp_library(NAME SOURCES a.c ... LINK bp_base ...)
#
# One library a folder: src/io/h5 is bp_io_h5 and NAME io_h5. `#include "io/h5/thing.h"` is found only by those that link it:
# the folder is reached through a link of its own in the build tree, so that an upward include does not build.
function(bp_library name)
  cmake_parse_arguments(LIB "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  set(door ${CMAKE_BINARY_DIR}/include/${name})
  get_filename_component(above ${door}/${folder} DIRECTORY)
  file(MAKE_DIRECTORY ${above})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${door}/${folder} SYMBOLIC)
  add_library(bp_${name} STATIC ${LIB_SOURCES})
  target_include_directories(bp_${name} PUBLIC ${door})
  target_link_libraries(bp_${name} PUBLIC ${LIB_LINK} PRIVATE ${LIB_PRIVATE_LINK} bp_flags)
  set_property(GLOBAL APPEND PROPERTY BAGPIPE_LIBRARIES bp_${name})
endfunction()

# bp_program(NAME SOURCES a.c ... LINK ...): an installed program
function(bp_program name)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_link_libraries(${name} PRIVATE ${PROGRAM_LINK} bp_flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()
