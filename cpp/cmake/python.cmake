# The extension modules, built in the build tree. They are installed from there: by scikit-build-core into a wheel,
# by ./run into the environment that holds the editable install (cmake --install --component modules).
set(PYBIND11_FINDPYTHON ON)
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module NumPy)
if(NOT pybind11_DIR)
  execute_process(COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir OUTPUT_VARIABLE pybind11_DIR
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_package(pybind11 2.12 REQUIRED CONFIG)

# How the files of an extension module are compiled: text.h first, in every file.
function(mudd_bind_options name)
  target_include_directories(${name} PRIVATE cpp)
  target_compile_options(${name} PRIVATE -O1)
  get_target_property(sources ${name} SOURCES)
  list(LENGTH sources count)
  if(count GREATER 4 AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_precompile_headers(${name} PRIVATE cpp/bind/precompiled.h)
  else()  # making a precompiled header takes longer than it saves
    target_compile_options(${name} PRIVATE -include ${PROJECT_SOURCE_DIR}/cpp/bind/text.h)
  endif()
endfunction()

function(mudd_module name)
  pybind11_add_module(${name} NO_EXTRAS ${ARGN})
  mudd_bind_options(${name})
  # An HDF5 outside of the loader's path is found by the installed module too.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  set_property(GLOBAL APPEND PROPERTY MUDD_MODULES ${name})
  install(TARGETS ${name} LIBRARY DESTINATION mudd_core COMPONENT modules)
endfunction()
if(NOT SKBUILD_STATE STREQUAL "editable")  # an editable install reads configs/ of the checkout
  install(DIRECTORY configs/ DESTINATION mudd_core/configs COMPONENT configs
          FILES_MATCHING PATTERN "*.py" PATTERN "*.yaml" PATTERN "*.yml" PATTERN "*.json" PATTERN __pycache__ EXCLUDE)
  install(DIRECTORY docs/ DESTINATION mudd_core/docs COMPONENT configs FILES_MATCHING PATTERN "*.md")
endif()

file(GLOB bind_sources CONFIGURE_DEPENDS cpp/bind/*.cc)
list(FILTER bind_sources EXCLUDE REGEX "h5_module\\.cc$|mpi_module\\.cc$")
# One set of objects, two links: the product, and build/run/testing/_core with what cpp/testing adds.
add_library(core_bindings OBJECT ${bind_sources})
target_link_libraries(core_bindings PRIVATE core pybind11::module Python::NumPy)
mudd_bind_options(core_bindings)
mudd_module(_core $<TARGET_OBJECTS:core_bindings>)
target_link_libraries(_core PRIVATE core Python::NumPy)
if(MUDD_TESTS)
  pybind11_add_module(_core_testing NO_EXTRAS $<TARGET_OBJECTS:core_bindings> cpp/testing/bind_testing.cc)
  mudd_bind_options(_core_testing)
  target_link_libraries(_core_testing PRIVATE core_testing Python::NumPy)
  set_target_properties(_core_testing PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/testing)
endif()

if(EXISTS ${PROJECT_SOURCE_DIR}/cpp/bind/h5_module.cc)
  if(MUDD_STATIC_HDF5)
    set(HDF5_INCLUDE_DIRS ${MUDD_STATIC_HDF5}/include)
    set(HDF5_C_LIBRARIES ${MUDD_STATIC_HDF5}/lib/libhdf5.a z m dl -Wl,--exclude-libs,ALL)
  else()
    find_package(HDF5 REQUIRED COMPONENTS C)
  endif()
  file(GLOB h5_sources CONFIGURE_DEPENDS cpp/mudd/h5/*.cc)
  mudd_module(_h5 cpp/bind/h5_module.cc ${h5_sources})
  target_include_directories(_h5 PRIVATE ${HDF5_INCLUDE_DIRS})
  target_link_libraries(_h5 PRIVATE ${HDF5_C_LIBRARIES})
endif()

# Ranks as processes. The build goes on without Open MPI; `launch.py --ranks` then says what to install.
if(MUDD_MPI)
  find_package(MPI COMPONENTS C)
endif()
if(MUDD_MPI AND MPI_C_FOUND)
  mudd_module(_mpi cpp/bind/mpi_module.cc cpp/mudd/dist/comm_mpi.cc)
  target_link_libraries(_mpi PRIVATE core MPI::MPI_C)
else()
  message(STATUS "_mpi: left out, Open MPI (libopenmpi-dev) is not installed or MUDD_MPI is OFF")
endif()
get_property(modules GLOBAL PROPERTY MUDD_MODULES)
add_custom_target(modules DEPENDS ${modules})
