"""Text for people: tables, trees and sentences from values that the commands hand over.

Nothing here reads a topic or decides anything. Commands import its modules one by one, so that each
loads only what it shows. Imports no command.
"""
