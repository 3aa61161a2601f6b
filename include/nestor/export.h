/* Marks what the shared libraries export; everything else in them is hidden. */
#ifndef NESTOR_EXPORT_H
#define NESTOR_EXPORT_H

#define NESTOR_API __attribute__((visibility("default")))

#endif
