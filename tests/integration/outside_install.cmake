# Installs ${BUILD} into ${PREFIX}, starts the installed program, and lets it read the records that came with it.
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the installation failed (${status}):\n${output}")
endif()
execute_process(COMMAND ${PREFIX}/bin/nestor --version COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=NESTOR_RECORDS ${PREFIX}/bin/nestor db import --shipped --db ${PREFIX}/shipped.db
                COMMAND_ERROR_IS_FATAL ANY)
