# Make the archive for users out of the one that we link with: what is not belay_* gets a prefix, so
# that it cannot clash with a name of their program. Renamed and not made local: the archive stays one
# of many objects, and who takes no lock on the network need not link libcurl.
#
#   cmake -DNM=... -DOBJCOPY=... -DIN=libbelay-inside.a -DOUT=libbelay.a -P public_names.cmake
execute_process(COMMAND ${NM} --extern-only --defined-only --format=posix ${IN}
  OUTPUT_VARIABLE table COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n[A-Za-z_][^ \n]* [A-Z] " names "${table}")
list(TRANSFORM names REPLACE "^\n([^ ]*).*$" "\\1")
list(FILTER names EXCLUDE REGEX "^belay_")
list(REMOVE_DUPLICATES names)
list(LENGTH names n)
if(n LESS 100)
  message(FATAL_ERROR "${IN} has ${n} names of its own: is it the archive?")
endif()
list(TRANSFORM names REPLACE "^(.+)$" "\\1 belay_priv_\\1")
list(JOIN names "\n" map)
file(WRITE ${OUT}.names "${map}\n")
execute_process(COMMAND ${OBJCOPY} --redefine-syms=${OUT}.names ${IN} ${OUT} COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${OUT}.names)
