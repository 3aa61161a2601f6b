# Installs Nestor into ${BUILD}/install_tree, builds ${SOURCE} against it in a clean folder, and runs the result.
set(prefix ${BUILD}/install_tree)
set(outside ${BUILD}/outside_program)
file(REMOVE_RECURSE ${prefix} ${outside})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${outside} -G Ninja -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${outside})
run(${outside}/outside ${outside}/tuning.db)
run(${prefix}/bin/nestor --version)
run(${CMAKE_COMMAND} -E env --unset=NESTOR_RECORDS ${prefix}/bin/nestor db import --shipped --db ${outside}/shipped.db)
