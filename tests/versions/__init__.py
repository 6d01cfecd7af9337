"""The tests of the lessons under several versions of TensorFlow, each in an environment of its own."""
