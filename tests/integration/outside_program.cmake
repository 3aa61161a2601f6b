# Builds the project in ${SOURCE} against the Nestor that is installed in ${PREFIX}, in the clean folder ${OUTSIDE}, and runs ${RUN} there.
file(REMOVE_RECURSE ${OUTSIDE})

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${OUTSIDE} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
endfunction()

file(MAKE_DIRECTORY ${OUTSIDE})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${OUTSIDE} -G Ninja -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${OUTSIDE})
separate_arguments(command UNIX_COMMAND "${RUN}")
run(${command})
