# Paths of this checkout and its build, for the tests: what support/places.hpp declares, in one source.
set(tsdiag_places test_data shared_data program_file mpirun_file fault_shim emulated_plugin spoilt_plugin other_plugin
    cuda_plugin gpu_check_file compare_tables_file)

# tsdiag_place(NAME PATH): may be a generator expression.
function(tsdiag_place name path)
    set_property(GLOBAL PROPERTY tsdiag_place_${name} ${path})
endfunction()

# Called once all places are known.
function(tsdiag_write_places)
    set(text "#include \"support/places.hpp\"\n\nnamespace tsdiag::test {\n\n")
    foreach(name IN LISTS tsdiag_places)
        get_property(path GLOBAL PROPERTY tsdiag_place_${name})
        string(APPEND text "std::string ${name}() { return R\"(${path})\"; }\n")
    endforeach()
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/places.cpp CONTENT "${text}\n}  // namespace tsdiag::test\n")
endfunction()

add_library(tsdiag_places STATIC ${CMAKE_CURRENT_BINARY_DIR}/places.cpp)
target_include_directories(tsdiag_places PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
tsdiag_place(test_data ${CMAKE_CURRENT_SOURCE_DIR}/data)
tsdiag_place(shared_data ${PROJECT_SOURCE_DIR}/../shared/data)
